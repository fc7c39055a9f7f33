"""The rows of one call: what is known about them is worked out once, when it is first needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from fareg._columns import SensitiveFeatures, select_columns, take_rows
from fareg._hashing import row_uniforms
from fareg._validation import FloatArray, IntArray, InvalidInputError, check_proba
from fareg.scores import is_randomised

SLICED = ("proba", "scores", "own_scores", "uniforms")  # what a part of the rows inherits


@dataclass(frozen=True, eq=False)
class Rows:
    """A table with everything that scores and calibrations ask of it.

    Attributes
    ----------
    X : frame or array of shape (n_samples, n_features)
    ask : function
        ``ask(X)`` returns class probabilities of shape (n_samples, n_classes).
    score : function
        ``score(proba, u)`` returns conformity scores of the same shape.
    selection : names, positions or callable
        The sensitive features.
    key : int
        Seeds the uniform numbers of the rows.
    codes : int ndarray of shape (n_samples,) or None
        The column of each true label, -1 for a label that the estimator does not know; None while
        predicting.
    clusters : ndarray of shape (n_samples,) or None
        Ids of people or places with several rows.
    hidden : tuple of str
        Columns of X that never define groups, because they hold probabilities.
    """

    X: Any
    ask: Callable[[Any], Any]
    score: Callable[[FloatArray, Any], Any]
    selection: SensitiveFeatures
    key: int
    codes: IntArray | None = None
    clusters: Any = None
    hidden: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.X)

    @cached_property
    def columns(self) -> pd.DataFrame:
        """The sensitive features in canonical form."""
        return select_columns(self.X, self.selection, hidden=self.hidden)

    @cached_property
    def proba(self) -> FloatArray:
        """Class probabilities, of shape (n_samples, n_classes)."""
        return check_proba(self.ask(self.X))

    @cached_property
    def uniforms(self) -> FloatArray:
        """One number in [0, 1) per row, a function of its values and the key alone."""
        return row_uniforms(self.X, self.key)

    @cached_property
    def scores(self) -> FloatArray:
        """Conformity scores of every label, of shape (n_samples, n_classes)."""
        u = self.uniforms if is_randomised(self.score) else None
        scores = np.asarray(self.score(self.proba, u), dtype=np.float64)
        if scores.shape != self.proba.shape or np.isnan(scores).any():
            raise InvalidInputError(
                f"conformity_score must return an array of shape {self.proba.shape} without NaN, "
                f"got shape {scores.shape}"
            )
        return scores

    @cached_property
    def own_scores(self) -> FloatArray:
        """Scores of the true labels; a label that the estimator does not know is in no set."""
        codes = self.labels
        return np.where(codes >= 0, self.scores[np.arange(len(codes)), codes], np.inf)

    @property
    def labels(self) -> IntArray:
        """The column of each true label."""
        if self.codes is None:
            raise InvalidInputError("these rows have no labels; pass y to calibrate on them")
        return self.codes

    def problems(self, label_conditional: bool) -> tuple[IntArray | None, int]:
        """Return the labels to calibrate each on its own and their number; else None and 1."""
        return (self.labels, self.scores.shape[1]) if label_conditional else (None, 1)

    def once(self, name: str, compute: Callable[[], Any]) -> Any:
        """Return what ``compute`` returns, computed at the first call with this name."""
        if name not in self._known:
            self._known[name] = compute()
        return self._known[name]

    @cached_property
    def _known(self) -> dict[str, Any]:
        return {}

    def selecting(self, selection: SensitiveFeatures) -> Rows:
        """Return the same rows with other sensitive features."""
        other = replace(self, selection=selection)
        vars(other).update({name: vars(self)[name] for name in SLICED if name in vars(self)})
        return other

    def take(self, chosen: IntArray) -> Rows:
        """Return some of the rows, with what is already known about them."""
        codes = None if self.codes is None else self.codes[chosen]
        clusters = None if self.clusters is None else self.clusters[chosen]
        part = replace(self, X=take_rows(self.X, chosen), codes=codes, clusters=clusters)
        for name in SLICED:
            if name in vars(self):
                vars(part)[name] = vars(self)[name][chosen]
        if "columns" in vars(self):
            vars(part)["columns"] = self.columns.iloc[chosen].reset_index(drop=True)
        return part


def require(condition: Any, part: str) -> None:
    """Refuse a stored model whose parts contradict each other."""
    if not condition:
        raise ValueError(f"its parts contradict each other, see {part}")
