"""The rows of a call: read as fit read its own, scored by the estimator, with random numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from fareg._columns import code_table, column_names, columns_at, in_order, is_frame
from fareg._drift import Summary, check_strange
from fareg._hashing import numbered_hashes, row_hashes, uniforms_of
from fareg._labels import label_codes
from fareg._selection import select_columns
from fareg._validation import (
    FloatArray,
    IntArray,
    InvalidInputError,
    NotConformalizedError,
    check_proba,
)
from fareg._words import shown
from fareg.calibration import Batch, Labelled
from fareg.classifiers._inputs import (
    Given,
    check_names,
    check_numbers,
    checked_ids,
    given_proba,
    sensitive_beside,
    validated_table,
    warn_of_swapped,
)
from fareg.classifiers._learning import asked, hidden_columns
from fareg.scores import get_score, is_randomised

BLOCK = 1 << 22  # probabilities that are scored at a time: 32 megabytes


class ScoredRows:
    """From tables to batches: how a classifier reads the rows that it is called with.

    What it needs is left by ``fit`` and ``conformalize``: the estimator, the kinds of columns, and
    the parameters as they were then.
    """

    classes_: Any
    estimator_: Any
    key_: int
    parameters_: dict[str, Any]
    seen_values_: Summary

    _has_groups = True  # whether the sensitive features matter to this method

    def _given(
        self,
        X: Any,
        caller: str,
        proba: Any = None,
        sensitive_features: Any = None,
        ids: Any = None,
    ) -> Given:
        """Return the rows that a method was called with, after checks."""
        self._check_fitted(caller)
        if is_frame(X):
            hidden_columns(self.estimator_, X)  # refuses a table without a column of probabilities
        given = self._read(X, proba, sensitive_features, ids)
        check_strange(self.seen_values_, given.table, given.beside)
        return given

    def _read(
        self, X: Any, proba: Any, sensitive_features: Any, ids: Any, labels: Any = None
    ) -> Given:
        """Return rows like those of fit; ``labels`` names the columns of their probabilities."""
        X = validated_table(self, X, reset=False)
        given = given_proba(proba, X, self.classes_, labels)
        beside = sensitive_beside(sensitive_features, X, getattr(self, "sensitive_kinds_", None))
        table = code_table(X)
        check_numbers(table, getattr(self, "column_kinds_", None))
        return Given(table, beside=beside, ids=checked_ids(X, ids), proba=given)

    def _batches(
        self, given: Given, role: str = "prediction", hashes: Any = None, before: Any = None
    ) -> Iterator[Batch]:
        """Yield the rows, so few at a time that all their scores fit into memory.

        ``hashes`` are those of the rows, if they are known; ``before`` is how many equal rows stand
        before each, if there are others than these.
        """
        if given.ids is not None and role == "prediction":
            before = np.zeros(len(given), dtype=np.int64)  # the answer to a person is one answer
        hashes = self.row_hashes(given) if hashes is None else hashes
        u = uniforms_of(numbered_hashes(hashes, role, before))
        people, blocks = self._people(given), self._blocks(len(given))
        if len(blocks) == 1:
            yield self._scored(given, people, u, 0)
            return
        for place in blocks:
            own = people.iloc[place].reset_index(drop=True)
            yield self._scored(given.take(place), own, u[place], place.start)

    def _scored(self, given: Given, people: pd.DataFrame, u: FloatArray, start: int) -> Batch:
        """Score every label of some rows."""
        if given.proba is None:
            proba = check_proba(self._ask("predict_proba", given.X))
        else:
            proba = check_proba(given.proba, first_row=start)
        score = get_score(self.parameters_["conformity_score"])
        scores = np.asarray(score(proba, u if is_randomised(score) else None), dtype=np.float64)
        if scores.shape != proba.shape or np.isnan(scores).any():
            raise InvalidInputError(
                f"conformity_score must return an array of shape {proba.shape} without NaN, "
                f"got shape {scores.shape}"
            )
        return Batch(people, proba, scores, u)

    def _labelled(
        self, given: Given, codes: IntArray, role: str, hashes: Any = None, before: Any = None
    ) -> Labelled:
        """Return rows with known labels, reduced to what they teach."""
        hashes = self.row_hashes(given, codes) if hashes is None else hashes
        clusters = None
        if given.clusters is not None:
            clusters = np.unique(given.clusters, return_inverse=True)[1]
        batches, parts = self._batches(given, role, hashes, before), list[Labelled]()
        for batch, place in zip(batches, self._blocks(len(given)), strict=True):
            if not parts and (given.proba is not None or hidden_columns(self.estimator_, given.X)):
                warn_of_swapped(batch.proba.argmax(axis=1), codes[place], self.classes_)
            own = None if clusters is None else clusters[place]
            parts.append(batch.labelled(codes[place], own))
        return Labelled.joined(parts)

    def labelled_rows(
        self, X: Any, y: Any, *, sensitive_features: Any = None, ids: Any = None, before: Any = None
    ) -> Labelled:
        """Return labelled rows with the random numbers that they have where they calibrate.

        ``before`` says how many equal rows stand before each one, if some are in other tables.
        """
        given = self._given(X, "labelled_rows", None, sensitive_features, ids)
        return self._labelled(given, label_codes(y, self.classes_), "calibration", before=before)

    def labelled_hashes(
        self, X: Any, y: Any, *, sensitive_features: Any = None, ids: Any = None
    ) -> Any:
        """Return what equal rows have in common, labels and ids included: 64 bits per row."""
        given = self._given(X, "labelled_hashes", None, sensitive_features, ids)
        return self.row_hashes(given, label_codes(y, self.classes_))

    def row_hashes(self, given: Given, codes: IntArray | None = None) -> Any:
        """Return 64 bits per row that equal rows have in common, by values, ids and labels."""
        if given.proba is None:
            return row_hashes(given.table, self.key_, None, given.ids, codes)
        parts = []
        for place in self._blocks(len(given)):
            part, own = given.take(place), None if codes is None else codes[place]
            parts.append(row_hashes(part.table, self.key_, part.proba, part.ids, own))
        return np.concatenate(parts)

    def _blocks(self, n: int) -> list[slice]:
        """Return slices of rows, so few at a time that all their scores fit into memory."""
        size = max(1, BLOCK // len(self.classes_))
        return [slice(start, start + size) for start in range(0, n, size)]

    def _people(self, given: Given) -> pd.DataFrame:
        """Return the sensitive columns of the rows in canonical form."""
        if not self._has_groups:
            return pd.DataFrame(index=range(len(given)))
        kinds = getattr(self, "sensitive_kinds_", None)
        if kinds is not None and given.beside is None:
            raise InvalidInputError(
                f"this classifier was calibrated with sensitive features beside X ({shown(kinds)});"
                " pass them again: sensitive_features=frame"
            )
        return self._sensitive_columns(given, self.parameters_["sensitive_features"])

    def _people_of(self, X: Any, caller: str, sensitive_features: Any) -> pd.DataFrame:
        """Return the sensitive columns of the rows that a method was called with."""
        return self._people(self._given(X, caller, None, sensitive_features))

    def _sensitive_columns(self, given: Given, selection: Any) -> pd.DataFrame:
        """Return selected columns of the rows in canonical form."""
        table = given.table if given.beside is None else given.beside
        hidden = hidden_columns(self.estimator_, given.X)
        return select_columns(table, selection, hidden=hidden)

    def _features(self, X: Any) -> Any:
        """Return what the estimator may read of X."""
        excluded = getattr(self, "excluded_", [])
        kept = [p for p in range(len(column_names(X))) if p not in excluded] if excluded else []
        return columns_at(X, kept) if excluded else X

    def _ask(self, method: str, X: Any) -> Any:
        """Return what the estimator says about rows; if it refuses them, say so in one line."""
        X = self._features(X)
        if is_frame(X):  # in the order in which the estimator knows the columns, if it does
            X = in_order(X, getattr(self.estimator_, "feature_names_in_", None))
        try:
            with asked(self.estimator_, X, "refuses these rows"):
                return getattr(self.estimator_, method)(X)
        except InvalidInputError as error:
            if "feature names" in str(error):  # scikit-learn says which on further lines
                check_names(self.estimator_, X, "estimator")
            raise

    def changed_parameters(self) -> list[str]:
        """Return the parameters that were set to something else after fit.

        Answers are refused until the next fit: they would be those of the old parameters.
        """
        return [
            name
            for name, value in self.parameters_.items()
            if (now := getattr(self, name)) is not value and repr(now) != repr(value)
        ]

    def _check_fitted(self, caller: str) -> None:
        if not self.__sklearn_is_fitted__():
            raise NotConformalizedError(
                f"this {type(self).__name__} is not conformalized yet; call fit(X, y), or "
                f"conformalize(X, y) with a fitted estimator, before {caller}"
            )
        if changed := self.changed_parameters():
            raise NotConformalizedError(
                f"{', '.join(changed)} was changed after fit, and sets would still be those of the "
                f"old value; call fit or conformalize again before {caller}, or set it back"
            )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "n_calibration_")
