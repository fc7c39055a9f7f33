"""Answers of a fitted classifier: rows are read and scored once, then turned into sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
from sklearn.pipeline import Pipeline
from sklearn.utils.metaestimators import available_if

from fareg._columns import is_frame, select_columns
from fareg._drift import Summary, check_drift
from fareg._files import AnyPath, check_output
from fareg._labels import label_codes, set_text
from fareg._rows import (
    distinct_rows,
    in_chunks,
    numbered_hashes,
    repeated_rows,
    row_hashes,
    uniforms_of,
)
from fareg._validation import (
    BoolArray,
    FloatArray,
    InvalidInputError,
    NotConformalizedError,
    check_confidence_level,
    check_proba,
)
from fareg._words import HTML, confidence, shown
from fareg.calibration import Batch, Calibration, Labelled
from fareg.classifiers._models import ask, hidden_columns
from fareg.classifiers._rows import Rows, read_rows, warn_of_swapped
from fareg.scores import get_score, is_randomised

if TYPE_CHECKING:
    from fareg.auditing import Comparison


def frame_like(X: Any, table: pd.DataFrame) -> Any:
    """Return a table as a frame of X's library, with X's index if it has one."""
    if isinstance(X, pd.DataFrame):
        return table.set_axis(X.index, axis=0)
    if not is_frame(X):
        return table
    columns = {str(name): column.tolist() for name, column in table.items()}
    return nw.from_dict(columns, backend=nw.get_native_namespace(X).__name__).to_native()


def _scores(score: Any, proba: FloatArray, u: Any) -> FloatArray:
    """Return the scores of a function that may be the user's own, after checks."""
    scores = np.asarray(score(proba, u), dtype=np.float64)
    if scores.shape != proba.shape or np.isnan(scores).any():
        raise InvalidInputError(
            f"conformity_score must return an array of shape {proba.shape} without NaN, "
            f"got shape {scores.shape}"
        )
    return scores


class FittedAnswers:
    """Reads rows as ``fit`` did, scores them, and gives each row its random number.

    ``fit`` or ``conformalize`` set the attributes that end in an underscore.
    """

    estimator: Any
    allow_empty: bool
    conformity_score: Any
    label_conditional: bool
    sensitive_features: Any

    alpha_: float
    calibration_: Any
    classes_: Any
    column_kinds_: dict[str, str] | None
    estimator_: Any
    excluded_: list[int]
    key_: int
    n_calibration_: int
    n_calibration_clusters_: int | None
    parameters_: dict[str, Any]
    seen_values_: Summary
    sensitive_kinds_: dict[str, str] | None
    shift_: Any = None  # weights of rows, if sets are for another population

    _has_groups = True  # whether the method uses the sensitive features
    _takes_weights = False  # whether its promise is proven for weighted rows
    _draws = True  # whether it may use the random numbers of rows for more than scores

    def predict(self, X: Any, *, proba: Any = None) -> Any:
        """Return the labels that the wrapped estimator predicts, shape (n_samples,).

        With ``proba``, or if the estimator has no ``predict``, return the most probable labels.
        """
        rows = self._checked_rows(X, proba)
        if rows.proba is None and hasattr(self.estimator_, "predict"):
            return np.asarray(ask(self.estimator_, rows.X, self.excluded_, "predict"))
        return self.classes_[self._probabilities(rows).argmax(axis=1)]

    def predict_proba(self, X: Any, *, proba: Any = None) -> FloatArray:
        """Return the wrapped estimator's probabilities, shape (n_samples, n_classes)."""
        return self._probabilities(self._checked_rows(X, proba))

    def conformity_scores(
        self, X: Any, *, proba: Any = None, sensitive_features: Any = None, ids: Any = None
    ) -> FloatArray:
        """Return the conformity score of every label, shape (n_samples, n_classes).

        ``predict_set`` keeps the labels whose score is at most the threshold of the row.
        Calibration rows get other random numbers here than in calibration.
        """
        return self._answer(lambda batch: batch.scores, X, proba, sensitive_features, ids)

    def predict_set(
        self,
        X: Any,
        *,
        proba: Any = None,
        sensitive_features: Any = None,
        ids: Any = None,
        confidence_level: float | None = None,
    ) -> BoolArray:
        """Return prediction sets.

        A randomised score needs a random number for each row. With ``ids``, it depends on the seed,
        the id and the values of the row, never on other rows. Without ids, it also depends on how
        many equal rows stand before it in the call. Equal rows that are predicted one at a time
        share a number, so they are covered together or not at all: give them ids.

        Parameters
        ----------
        X : frame or array of shape (n_samples, n_features)
        proba : array or frame of shape (n_samples, n_classes), default=None
            Class probabilities of these rows, with columns in the order of ``classes_``. If None,
            the estimator computes them.
        sensitive_features : frame of shape (n_samples, n_sensitive_features), default=None
            Needed if ``fit`` or ``conformalize`` got such a frame.
        ids : array-like of shape (n_samples,), default=None
            The id of the person behind each row; ids may repeat. They define no groups, and the
            estimator never sees them.
        confidence_level : float in (0, 1), default=None
            Coverage to promise instead of that of ``fit``; choose it before you look at the sets,
            which hold the labels with a p-value above ``1 - confidence_level``. Methods without
            ``predict_p`` refuse it.

        Returns
        -------
        sets : bool ndarray of shape (n_samples, n_classes)
            ``sets[i, j]`` is True if ``classes_[j]`` is in the set of row i.
        """
        alpha = None if confidence_level is None else check_confidence_level(confidence_level)
        return self._answer(lambda rows: self._sets(rows, alpha), X, proba, sensitive_features, ids)

    @available_if(lambda clf: getattr(clf, "calibration_", Calibration).has_pvalues)
    def predict_p(
        self, X: Any, *, proba: Any = None, sensitive_features: Any = None, ids: Any = None
    ) -> FloatArray:
        """Return conformal p-values; ``predict_set(X)`` equals ``predict_p(X) > alpha_``.

        With ``allow_empty=False``, sets that would be empty hold one more label.

        Parameters
        ----------
        X, proba, sensitive_features, ids
            As in :meth:`predict_set`.

        Returns
        -------
        p : ndarray of shape (n_samples, n_classes)
            ``P(p <= alpha) <= alpha`` wherever the method promises coverage ``1 - alpha``.
        """
        inputs = (X, proba, sensitive_features, ids)
        return self._answer(lambda batch: self.calibration_.pvalues(batch), *inputs)

    def predict_labels(
        self, X: Any, *, proba: Any = None, sensitive_features: Any = None, ids: Any = None
    ) -> list[Any]:
        """Return the labels in the set of each row, the most probable first.

        Returns
        -------
        labels : list of ndarray
            One array of labels per row.
        """
        labels = []
        for batch in self._batches(X, proba, sensitive_features, ids):
            order = np.argsort(-batch.proba, axis=1, kind="stable")
            kept = np.take_along_axis(self._sets(batch), order, axis=1)
            labels += [self.classes_[j[keep]] for j, keep in zip(order, kept, strict=True)]
        return labels

    def predict_table(
        self,
        X: Any,
        *,
        proba: Any = None,
        sensitive_features: Any = None,
        ids: Any = None,
        confidence_level: float | None = None,
        action: bool = False,
    ) -> Any:
        """Return a table with the set, its size and the top label of each row.

        With ``action``, the column ``action`` says "decide" if the set holds one label, otherwise
        "refer": a person should look at the row.

        Parameters
        ----------
        X, proba, sensitive_features, ids, confidence_level
            As in :meth:`predict_set`.

        Returns
        -------
        DataFrame, from the library of X and with its index, if it has one
            ``set`` (a JSON list of labels, such as ``["a", "b"]``), ``size``, ``top`` (the most
            probable label) and its ``probability``; methods with groups add columns.
        """
        alpha = None if confidence_level is None else check_confidence_level(confidence_level)
        self._check_fitted()
        labels = np.array([str(label) for label in self.classes_], dtype=object)
        parts = []
        for batch in self._batches(X, proba, sensitive_features, ids):
            sets = self._sets(batch, alpha)
            first, inverse = distinct_rows(pd.DataFrame(sets))  # write each distinct set once
            texts = [set_text(labels[row]) for row in sets[first]]
            columns = {
                "set": np.array(texts, dtype=object)[inverse],
                "size": sets.sum(axis=1).astype(np.int64),
                "top": labels[batch.proba.argmax(axis=1)],
                "probability": batch.proba.max(axis=1),
                **self._describe_rows(batch),
            }
            if action:
                columns["action"] = np.where(columns["size"] == 1, "decide", "refer")
            parts.append(pd.DataFrame(columns))
        return frame_like(X, pd.concat(parts, ignore_index=True))

    def report(
        self,
        X: Any,
        y: Any,
        path: AnyPath | None = None,
        *,
        before: Any = None,
        proba: Any = None,
        sensitive_features: Any = None,
        ids: Any = None,
        clusters: Any = None,
        measures: bool = True,
        about: Mapping[str, Any] | None = None,
        listed: Sequence[str] | None = None,
    ) -> Comparison:
        """Compare this classifier with split conformal sets, on rows that it never saw.

        Both use the same calibration rows. An audit of the new sets shows which problems remain.

        Parameters
        ----------
        X : frame or array of shape (n_samples, n_features)
            Rows that took no part in training and calibration.
        y : array-like of shape (n_samples,)
        path : path of an HTML file, default=None
            Where to write the report; None writes no file.
        before : fitted conformal classifier, default=None
            The classifier to compare with; None for split conformal sets.
        proba, sensitive_features, ids, clusters : default=None
            As in :meth:`predict_set` and :meth:`fit`.
        measures : bool, default=True
            Whether the audit also computes worst slabs and excess risk, which takes most of the
            time.
        about : mapping, default=None
            Where the numbers come from: ``file``, ``target``, ``base_model``.
        listed : list of names, default=None
            Columns whose categories the table of groups lists. None lists those of the sensitive
            features that were named, or the least covered categories if none were.

        Returns
        -------
        Comparison
            With ``verdict``, ``before``, ``after``, ``groups``, ``summary()``, ``to_dict()`` and
            ``to_html(path)``.
        """
        from fareg.classifiers._report import compare  # prediction needs no audits

        if path is not None:
            check_output(path, endings=HTML)
        rows = self._checked_rows(X, proba, sensitive_features, ids)
        options = {"clusters": clusters, "measures": measures, "about": about}
        comparison = compare(self, rows, y, before, listed, **options)
        if path is not None:
            comparison.to_html(path)
        return comparison

    @property
    def thresholds_(self) -> Any:
        """Thresholds of shape (n_cells, n_labels); missing if every new row has its own."""
        return self.calibration_.quantiles

    @property
    def promise_(self) -> str:
        """The promise for new rows, in a sentence; the proofs are in the documentation."""
        group = self._promised_to()
        if group is None:
            return "No promise is proven in finite samples for this configuration."
        each = ", each within" if " and " in group else ", within"
        labels = f"{each} every true label" if self.label_conditional else ""
        condition = "new rows are like the calibration rows"
        if self.shift_ is not None:
            condition = "the weights say how the new population differs from the calibration rows"
        if self.n_calibration_clusters_ is not None:
            condition = "a row is drawn at random from a new cluster like the calibration clusters"
        return (
            f"Sets hold the true label with probability at least {confidence(1 - self.alpha_)} for "
            f"{group}{labels}, if {condition}."
        )

    def _promised_to(self) -> str | None:
        """Return the groups with a promise, in words; None if nothing is proven."""
        return "everyone together"

    def _describe_rows(self, batch: Batch) -> dict[str, Any]:
        """Return additional columns for ``predict_table``."""
        return {}

    def _sets(self, batch: Batch, alpha: float | None = None) -> BoolArray:
        """Return the sets of these rows, at the confidence level of fit or another one."""
        if alpha is None:
            return self._fill_empty(batch, batch.scores <= self.calibration_.thresholds(batch))
        if not self.calibration_.has_pvalues:
            raise InvalidInputError(
                f"{type(self).__name__} has no p-values and keeps the confidence level of fit, "
                f"{1 - self.alpha_:g}, got {1 - alpha:g}; fit again to change it"
            )
        return self._fill_empty(batch, self.calibration_.pvalues(batch) > alpha)

    def _fill_empty(self, batch: Batch, sets: BoolArray) -> BoolArray:
        """Put the most probable label into empty sets, unless ``allow_empty``."""
        if not self.allow_empty:
            empty = np.flatnonzero(~sets.any(axis=1))
            sets[empty, batch.proba[empty].argmax(axis=1)] = True
        return sets

    def _batches(
        self, X: Any, proba: Any = None, sensitive_features: Any = None, ids: Any = None
    ) -> Iterator[Batch]:
        """Yield the rows of a call, scored."""
        return self._scored(self._checked_rows(X, proba, sensitive_features, ids))

    def _answer(self, function: Callable[[Batch], Any], *inputs: Any) -> Any:
        """Return what ``function`` gives for all rows of a call."""
        return np.concatenate([function(batch) for batch in self._batches(*inputs)])

    def _checked_rows(
        self, X: Any, proba: Any = None, sensitive_features: Any = None, ids: Any = None
    ) -> Rows:
        """Return the rows of a call after all checks."""
        self._check_fitted()
        rows = read_rows(self, X, proba, sensitive_features, ids)
        check_drift(self.seen_values_, rows.table, rows.sensitive)
        return rows

    def _people(self, rows: Rows) -> pd.DataFrame:
        """Return the sensitive columns of the rows in canonical form."""
        if not self._has_groups:
            return pd.DataFrame(index=range(len(rows)))
        if self.sensitive_kinds_ is not None and rows.sensitive is None:
            raise InvalidInputError(
                "this classifier was calibrated with a frame of sensitive features "
                f"({shown(self.sensitive_kinds_)}); pass them again: sensitive_features=frame"
            )
        hidden = hidden_columns(self.estimator_, rows.table)
        X, table = (rows.X, rows.table) if rows.sensitive is None else (rows.sensitive,) * 2
        return select_columns(X, self.sensitive_features, hidden=hidden, columns=table)

    def _read_people(self, X: Any, sensitive_features: Any) -> pd.DataFrame:
        """Return the sensitive columns of the rows of a call."""
        return self._people(self._checked_rows(X, None, sensitive_features))

    def _scored(
        self, rows: Rows, role: str = "prediction", hashes: Any = None, before: Any = None
    ) -> Iterator[Batch]:
        """Yield the rows with scores and random numbers, in blocks that fit into memory.

        Pass ``hashes`` if they are known, and ``before``, the number of equal rows before each row,
        if some of these are in other tables.
        """
        people, score, weights = self._people(rows), get_score(self.conformity_score), None
        u = None
        if is_randomised(score) or self._draws or rows.clusters is not None:
            if rows.ids is not None and role == "prediction":
                before = np.zeros(len(rows), dtype=np.int64)  # equal rows of one id get one answer
            hashes = self._hashes(rows) if hashes is None else hashes
            u = uniforms_of(numbered_hashes(hashes, role, before))
        if self.shift_ is not None and role == "prediction":
            weights = self.shift_.of_new(rows.tables, len(self.classes_))
        for place, block in rows.blocks(len(self.classes_)):
            proba = self._probabilities(block, place.start)
            block_u = None if u is None else u[place]
            known_u = block_u if is_randomised(score) else None
            scores = in_chunks(partial(_scores, score), proba, known_u)
            block_people = people if block is rows else people.iloc[place].reset_index(drop=True)
            block_weights = None if weights is None else weights[place]
            equal = repeated_rows(block_people)
            yield Batch(block_people, proba, scores, block_u, block_weights, equal)

    def _probabilities(self, rows: Rows, first_row: int = 0) -> FloatArray:
        """Return class probabilities: those that the caller passed, or the estimator's."""
        if rows.proba is not None:
            return check_proba(rows.proba, first_row=first_row)
        model, X = self.estimator_, rows.X
        if self.estimator is None and isinstance(model, Pipeline) and not self.excluded_:
            model, X = model[1:], rows.table  # the first step makes columns canonical
        return check_proba(ask(model, X, self.excluded_))

    def _hashes(self, rows: Rows) -> Any:
        """Return a 64-bit hash of each row: of its values, its id and its label."""
        blocks = rows.blocks(len(self.classes_))
        parts = [row_hashes(r.table, self.key_, r.proba, r.ids, r.codes) for _, r in blocks]
        return np.concatenate(parts)

    def _labelled(self, rows: Rows, role: str, hashes: Any = None, before: Any = None) -> Labelled:
        """Return rows with known labels, reduced to what learning and calibration need."""
        codes: Any = rows.codes
        parts, start = list[Labelled](), 0
        is_from_table = rows.proba is not None or hidden_columns(self.estimator_, rows.table)
        for batch in self._scored(rows, role, hashes, before):
            place = slice(start, start + len(batch))
            if is_from_table and role == "calibration" and not start:
                warn_of_swapped(batch.proba.argmax(axis=1), codes[place], self.classes_)
            clusters = None if rows.clusters is None else rows.clusters[place]
            parts.append(batch.labelled(codes[place], clusters))
            start = place.stop
        return Labelled.joined(parts) if len(parts) > 1 else parts[0]

    def labelled_rows(
        self, X: Any, y: Any, *, sensitive_features: Any = None, ids: Any = None, before: Any = None
    ) -> Labelled:
        """Return labelled rows with the random numbers that they have in calibration.

        ``before`` is the number of equal rows before each row, if some of these are in other
        tables.
        """
        rows = self._checked_rows(X, None, sensitive_features, ids)
        rows = replace(rows, codes=label_codes(y, self.classes_))
        return self._labelled(rows, "calibration", before=before)

    def labelled_hashes(
        self, X: Any, y: Any, *, sensitive_features: Any = None, ids: Any = None
    ) -> Any:
        """Return a 64-bit hash of each row, with its label and id."""
        rows = self._checked_rows(X, None, sensitive_features, ids)
        return self._hashes(replace(rows, codes=label_codes(y, self.classes_)))

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise NotConformalizedError(
                f"this {type(self).__name__} is not conformalized yet; call fit(X, y), or "
                "conformalize(X, y) with a fitted estimator"
            )
        if changed := self.changed_parameters():
            raise NotConformalizedError(
                f"{', '.join(changed)} was changed after fit, and sets would still be those of the "
                "old value; call fit or conformalize again, or set it back"
            )

    def changed_parameters(self) -> list[str]:
        """Return the parameters that were changed after fit.

        Answers are refused until the next fit, because they would be those of the old parameters.
        """
        return [
            name
            for name, value in self.parameters_.items()
            if (now := getattr(self, name)) is not value and repr(now) != repr(value)
        ]

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "n_calibration_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.allow_nan = tags.input_tags.string = True
        return tags
