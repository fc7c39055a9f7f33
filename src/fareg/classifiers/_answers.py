"""What a fitted conformal classifier answers: sets, p-values, tables, reports, cards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
from sklearn.utils.metaestimators import available_if

from fareg._columns import is_frame
from fareg._files import AnyPath, check_output
from fareg._labels import set_text
from fareg._levels import distinct_rows
from fareg._validation import (
    BoolArray,
    FloatArray,
    InvalidInputError,
    check_confidence_level,
    check_proba,
)
from fareg._words import HTML, confidence
from fareg.calibration import Batch
from fareg.classifiers._rows import ScoredRows

if TYPE_CHECKING:
    from fareg.auditing import Comparison


def set_texts(sets: BoolArray, labels: Any) -> Any:
    """Return each set as text; each distinct set is written once."""
    first, which = distinct_rows(pd.DataFrame(sets))
    return np.array([set_text(labels[row]) for row in sets[first]], dtype=object)[which]


def frame_like(X: Any, table: pd.DataFrame) -> Any:
    """Return a table as a frame of the library that made X, with its index if it has one."""
    if isinstance(X, pd.DataFrame):
        return table.set_axis(X.index, axis=0)
    if not is_frame(X):
        return table
    columns = {str(name): column.tolist() for name, column in table.items()}
    return nw.from_dict(columns, backend=nw.get_native_namespace(X).__name__).to_native()


def _may_have_pvalues(clf: FittedAnswers) -> bool:
    calibration = getattr(clf, "calibration_", None)
    return calibration is None or bool(calibration.has_pvalues)


class FittedAnswers(ScoredRows):
    """The methods that ask a fitted classifier; ``ConformalClassifier`` knows how to fit one."""

    alpha_: float
    calibration_: Any
    n_calibration_: int
    n_calibration_clusters_: int | None
    n_repeated_: int

    def predict(self, X: Any, *, proba: Any = None) -> Any:
        """Return the labels that the wrapped estimator predicts, shape (n_samples,).

        With ``proba``, or if the estimator has no ``predict``, they are the most probable labels.
        """
        given = self._given(X, "predict", proba)
        if proba is None and hasattr(self.estimator_, "predict"):
            return np.asarray(self._ask("predict", given.X))
        return self.classes_[self.predict_proba(X, proba=proba).argmax(axis=1)]

    def predict_proba(self, X: Any, *, proba: Any = None) -> FloatArray:
        """Return the wrapped estimator's probabilities, shape (n_samples, n_classes)."""
        given = self._given(X, "predict_proba", proba)
        table = self._ask("predict_proba", given.X) if proba is None else given.proba
        return check_proba(table)

    def conformity_scores(
        self, X: Any, *, proba: Any = None, sensitive_features: Any = None, ids: Any = None
    ) -> FloatArray:
        """Return the conformity score of every label, shape (n_samples, n_classes).

        ``predict_set`` keeps the labels whose score is at most the threshold of the row. Rows that
        calibrated have other random numbers here than they had there.
        """
        given = self._given(X, "conformity_scores", proba, sensitive_features, ids)
        return np.concatenate([batch.scores for batch in self._batches(given)])

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

        A randomised score needs a random number for each row. With ``ids``, it follows from the
        seed, the id and the values of the row, and an answer never depends on other rows. Without
        ids, equal rows of one call are numbered in their order, and each has a random number of its
        own; a row that equals none before it does not depend on others. Equal rows that are asked
        one at a time share one number, and are covered together or not at all: give them ids.

        Parameters
        ----------
        X : frame or array of shape (n_samples, n_features)
        proba : array or frame of shape (n_samples, n_classes), default=None
            Class probabilities of these rows, with columns in the order of ``classes_``. If None,
            the estimator is asked.
        sensitive_features : frame of shape (n_samples, n_sensitive_features), default=None
            Who the rows are about, if they were beside X in ``conformalize`` or ``fit``.
        ids : array-like of shape (n_samples,), default=None
            Whose row it is: one id per person, which may repeat. It defines no groups, and the
            estimator never sees it. Sets keep their promise with ids here, in ``fit``, in both or
            in neither.
        confidence_level : float in (0, 1), default=None
            Coverage to promise instead of the one of ``fit``, with the same calibration: the labels
            whose p-value is above ``1 - confidence_level``. Methods without ``predict_p`` refuse
            it. The promise is the same at every level that is fixed before the sets are seen.

        Returns
        -------
        sets : bool ndarray of shape (n_samples, n_classes)
            ``sets[i, j]`` tells whether ``classes_[j]`` is in the set of row i.
        """
        given = self._given(X, "predict_set", proba, sensitive_features, ids)
        if confidence_level is None:
            return np.concatenate([self._sets(batch) for batch in self._batches(given)])
        alpha = check_confidence_level(confidence_level)
        if not self.calibration_.has_pvalues:
            raise InvalidInputError(
                f"{type(self).__name__} has no p-values, so its sets have the confidence level of "
                f"fit, {1 - self.alpha_:g}, got {confidence_level!r}; fit again with that level"
            )
        parts = self._batches(given)
        return np.concatenate(
            [self._never_empty(self.calibration_.pvalues(own) > alpha, own) for own in parts]
        )

    @available_if(_may_have_pvalues)
    def predict_p(
        self, X: Any, *, proba: Any = None, sensitive_features: Any = None, ids: Any = None
    ) -> FloatArray:
        """Return conformal p-values; ``predict_set(X)`` equals ``predict_p(X) > alpha_``.

        With ``allow_empty=False``, sets that would be empty hold one label more.

        Parameters
        ----------
        X, proba, sensitive_features, ids
            As in :meth:`predict_set`.

        Returns
        -------
        p : ndarray of shape (n_samples, n_classes)
            ``P(p <= alpha) <= alpha`` wherever the method promises coverage ``1 - alpha``.
        """
        given = self._given(X, "predict_p", proba, sensitive_features, ids)
        return np.concatenate([self.calibration_.pvalues(own) for own in self._batches(given)])

    def predict_labels(
        self, X: Any, *, proba: Any = None, sensitive_features: Any = None, ids: Any = None
    ) -> list[Any]:
        """Return for each row the labels in its set, the most probable first.

        Returns
        -------
        labels : list of ndarray
            One array of labels per row.
        """
        given, labels = self._given(X, "predict_labels", proba, sensitive_features, ids), []
        for batch in self._batches(given):
            order = np.argsort(-batch.proba, axis=1, kind="stable")
            kept = np.take_along_axis(self._sets(batch), order, axis=1)
            labels += [self.classes_[j[own]] for j, own in zip(order, kept, strict=True)]
        return labels

    def predict_table(
        self, X: Any, *, proba: Any = None, sensitive_features: Any = None, ids: Any = None
    ) -> Any:
        """Return a line per row with its set, its size and its top label, among others.

        Returns
        -------
        DataFrame, of polars or another library if X is one, with the index of X if it has one
            ``set`` (a JSON list of labels, such as ``["a", "b"]``), ``size``, ``top`` (the most
            probable label) and its ``probability``; methods with groups add theirs.
        """
        given, parts = self._given(X, "predict_table", proba, sensitive_features, ids), []
        labels = np.array([str(label) for label in self.classes_], dtype=object)
        for batch in self._batches(given):
            sets = self._sets(batch)
            columns = {
                "set": set_texts(sets, labels),
                "size": sets.sum(axis=1).astype(np.int64),
                "top": labels[batch.proba.argmax(axis=1)],
                "probability": batch.proba.max(axis=1),
                **self._describe_rows(batch),
            }
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
        """Tell what this classifier does for whom, on rows that it never saw.

        Its sets stand beside split conformal ones with the same calibration rows; an audit tells
        what is left to repair. A warning tells of calibration rows among the given ones, if their
        scores give them away; rows that only trained the estimator are not known.

        Parameters
        ----------
        X : frame or array of shape (n_samples, n_features)
            Rows that took no part in training and calibration.
        y : array-like of shape (n_samples,)
        path : path of an HTML file, default=None
            Where to write the report; None writes no file.
        before : fitted conformal classifier, default=None
            The classifier whose sets are compared; None for split conformal sets.
        proba, sensitive_features, ids : default=None
            As in :meth:`predict_set`.
        clusters : array of shape (n_samples,), default=None
            Ids of people or places with several rows; each counts once in every coverage.
        measures : bool, default=True
            Whether the audit computes worst slabs and excess risk too, which takes most time.
        about : mapping, default=None
            What the report says about where the numbers come from: ``file``, ``target``,
            ``base_model``.
        listed : list of names, default=None
            Columns whose levels the table of groups lists; None for the sensitive features, if any
            were named. Without any, the levels that are covered least are listed.

        Returns
        -------
        Comparison
            With ``verdict``, ``before``, ``after``, ``groups``, ``summary()``, ``to_dict()`` and
            ``to_html(path)``.
        """
        # imported here, because prediction does without audits
        from fareg.classifiers._report import compare

        if path is not None:
            check_output(path, endings=HTML)
        given = self._given(X, "report", proba, sensitive_features, ids)
        comparison = compare(
            self, given, y, before, clusters=clusters, measures=measures, about=about, listed=listed
        )
        if path is not None:
            comparison.to_html(path)
        return comparison

    @property
    def thresholds_(self) -> Any:
        """Thresholds of shape (n_cells, n_labels); not there if each row to come has its own."""
        return self.calibration_.quantiles

    @property
    def promise_(self) -> str:
        """What holds for rows to come, in a sentence; the proofs are in the documentation."""
        who = self._promised_to()
        if who is None:
            return "No promise is proven in finite samples for this configuration."
        labels = ", for every true label" if self.parameters_["label_conditional"] else ""
        row = "rows to come are like those that calibrated"
        if self.n_calibration_clusters_ is not None:
            row = "a row is drawn at random from a cluster to come, like those that calibrated"
        return (
            f"Sets hold the true label with probability at least {confidence(1 - self.alpha_)} for "
            f"{who}{labels}, if {row}."
        )

    def _promised_to(self) -> str | None:
        """Say whom the promise is made to, None if nothing is proven."""
        return "everyone together"

    def _describe_rows(self, batch: Batch) -> dict[str, Any]:
        """Return further columns of ``predict_table``."""
        return {}

    def _sets(self, batch: Batch, thresholds: FloatArray | None = None) -> BoolArray:
        """Return the sets of these rows, by their own thresholds unless others are given."""
        own = self.calibration_.thresholds(batch) if thresholds is None else thresholds
        return self._never_empty(batch.scores <= own, batch)

    def _never_empty(self, sets: BoolArray, batch: Batch) -> BoolArray:
        """Give empty sets their most probable label, unless ``allow_empty``."""
        if not self.parameters_["allow_empty"]:
            empty = np.flatnonzero(~sets.any(axis=1))
            sets[empty, batch.proba[empty].argmax(axis=1)] = True
        return sets
