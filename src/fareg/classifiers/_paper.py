"""The published configuration of FaReG, with the hyperparameters of its data sets."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from fareg._validation import InvalidInputError, check_choice

COMMON: dict[str, Any] = {
    "construction": "union",
    "calibration": "reuse",
    "target": "coverage",
    "n_restarts": 1,
    "batch_size": 500,
    "hidden_sizes": (64, 32),
    "select_features": False,
    "significance": None,
    "cross_fit": False,
    "published_scale": True,
    "numbers": "codes",
}
OF_DATA: dict[str, dict[str, Any]] = {
    "synthetic": {
        "max_iter": 2000,
        "learning_rate": 1e-3,
        "beta": 2.0,
        "delta": 0.3,
        "n_draws": 20,
    },
    "nursery": {"max_iter": 800, "learning_rate": 1e-2, "beta": 0.1, "delta": 0.1, "n_draws": 100},
}


def published_settings(data: str) -> dict[str, Any]:
    """Return the parameters of the classifier and of its learner, as published for a data set."""
    return COMMON | OF_DATA[check_choice("data", data, OF_DATA)]


def check_published(cls: str, parameters: Mapping[str, Any], known: Iterable[str]) -> None:
    """Refuse a learner beside the published one, and names that are no parameter at all."""
    if parameters.get("learner") is not None:
        raise InvalidInputError(
            f"{cls}.paper makes the published learner itself, got another learner; change single "
            f"settings by name, as in {cls}.paper(delta=0.4), or pass the learner to {cls}(...)"
        )
    unknown = [name for name in parameters if name not in known]
    if unknown:
        near = difflib.get_close_matches(unknown[0], known, n=1, cutoff=0.0)[0]
        raise InvalidInputError(f"{cls}.paper has no parameter {unknown[0]}; did you mean {near}?")
