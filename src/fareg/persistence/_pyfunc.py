"""A model file behind MLflow's generic interface: tables in, tables of answers out, no pickle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fareg._files import AnyPath
from fareg.persistence._model_file import load


@dataclass(frozen=True)
class TableModel:
    """What MLflow calls with a table of new rows."""

    clf: Any

    def predict(self, model_input: Any, params: Any = None) -> Any:
        """Return ``predict_table`` of the rows."""
        return self.clf.predict_table(model_input)


def load_pyfunc(path: AnyPath, model_config: Mapping[str, Any] | None = None) -> TableModel:
    """Load a model file for MLflow, which asks for it by the name ``_load_pyfunc``.

    ``model_config`` may name types to trust and the digest of the file, as in :func:`fareg.load`:
    ``{"trusted": [...], "sha256": "..."}``.
    """
    given = {name: (model_config or {}).get(name) for name in ("trusted", "sha256")}
    return TableModel(load(path, **given))
