"""What a fitted conformal classifier answers: sets, p-values, tables, reports, cards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
from sklearn.utils.metaestimators import available_if

from fareg._columns import is_frame, without_columns
from fareg._drift import Summary, check_strange
from fareg._endings import HTML
from fareg._files import AnyPath, check_output
from fareg._labels import label_codes, set_text
from fareg._levels import distinct_rows
from fareg._validation import (
    BoolArray,
    FloatArray,
    IntArray,
    InvalidInputError,
    NotConformalizedError,
    check_confidence_level,
)
from fareg._words import confidence
from fareg.calibration import Rows
from fareg.classifiers._estimators import asked
from fareg.classifiers._inputs import (
    check_names,
    checked_ids,
    given_proba,
    in_order_of,
    no_sensitive,
    sensitive_beside,
    validated_table,
)
from fareg.classifiers._probabilities import hidden_columns
from fareg.scores import get_score

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


def _gives_pvalues(clf: FittedAnswers) -> bool:
    calibration = getattr(clf, "calibration_", None)
    return bool(clf._gives_pvalues() if calibration is None else calibration.has_pvalues)


class FittedAnswers:
    """The methods that ask a fitted classifier; ``ConformalClassifier`` knows how to fit one.

    What they need is left by ``fit`` and ``conformalize``: the calibration, the estimator, and the
    parameters as they were then.
    """

    alpha_: float
    calibration_: Any
    classes_: Any
    estimator_: Any
    key_: int
    n_calibration_: int
    n_calibration_clusters_: int | None
    n_repeated_: int
    parameters_: dict[str, Any]
    seen_values_: Summary

    def predict(self, X: Any, *, proba: Any = None) -> Any:
        """Return the labels that the wrapped estimator predicts, shape (n_samples,).

        With ``proba``, or if the estimator has no ``predict``, they are the most probable labels.
        """
        rows = self._rows(X, caller="predict", proba=proba)
        if proba is None and hasattr(self.estimator_, "predict"):
            return np.asarray(self._ask("predict", rows.X))
        return self.classes_[rows.top[0]]

    def predict_proba(self, X: Any, *, proba: Any = None) -> FloatArray:
        """Return the wrapped estimator's probabilities, shape (n_samples, n_classes)."""
        return self._rows(X, caller="predict_proba", proba=proba).proba

    def conformity_scores(self, X: Any, *, proba: Any = None, ids: Any = None) -> FloatArray:
        """Return the conformity score of every label, shape (n_samples, n_classes).

        ``predict_set`` keeps the labels whose score is at most the threshold of the row. Rows that
        calibrated have other random numbers here than they had there.
        """
        return self._rows(X, "conformity_scores", proba, ids=ids).scores

    def rows_to_calibrate(
        self, X: Any, y: Any, *, ids: Any = None, before: IntArray | None = None
    ) -> Rows:
        """Return labelled rows with the random numbers that they have where they calibrate.

        ``before`` tells how many equal rows stand before each one, if some are in other tables.
        """
        chance = {"codes": label_codes(y, self.classes_), "role": "calibration", "before": before}
        return self._rows(X, "rows_to_calibrate", ids=ids, **chance)

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
        rows = self._rows(X, "predict_set", proba, sensitive_features, ids)
        if confidence_level is None:
            return self._sets(rows)
        alpha = check_confidence_level(confidence_level)
        if not _gives_pvalues(self):
            raise InvalidInputError(
                f"{type(self).__name__} has no p-values, so its sets have the confidence level of "
                f"fit, {1 - self.alpha_:g}, got {confidence_level!r}; fit again with that level"
            )
        return self._never_empty(self.calibration_.pvalues(rows) > alpha, rows)

    @available_if(_gives_pvalues)
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
        rows = self._rows(X, "predict_p", proba, sensitive_features, ids)
        return self.calibration_.pvalues(rows)

    def predict_labels(
        self, X: Any, *, proba: Any = None, sensitive_features: Any = None, ids: Any = None
    ) -> list[Any]:
        """Return for each row the labels in its set, the most probable first.

        Returns
        -------
        labels : list of ndarray
            One array of labels per row.
        """
        rows = self._rows(X, "predict_labels", proba, sensitive_features, ids)
        sets, labels = self._sets(rows), []
        for place, part in rows.blocks():
            order = np.argsort(-part.proba, axis=1, kind="stable")
            own = np.take_along_axis(sets[place], order, axis=1)
            labels += [self.classes_[j[kept]] for j, kept in zip(order, own, strict=True)]
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
        rows = self._rows(X, "predict_table", proba, sensitive_features, ids)
        sets, (top, probability) = self._sets(rows), rows.top
        labels = np.array([str(label) for label in self.classes_], dtype=object)
        answers = {
            "set": set_texts(sets, labels),
            "size": sets.sum(axis=1).astype(np.int64),
            "top": labels[top],
            "probability": probability,
            **self._describe_rows(rows),
        }
        return frame_like(X, pd.DataFrame(answers))

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
        rows = self._rows(X, "report", proba, sensitive_features, ids)
        told = compare(
            self, rows, y, before, clusters=clusters, measures=measures, about=about, listed=listed
        )
        if path is not None:
            told.to_html(path)
        return told

    @property
    def thresholds_(self) -> Any:
        """Thresholds per view and category; not there if each row to come has its own."""
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

    def changed_parameters(self) -> list[str]:
        """Return the parameters that were set to something else after fit.

        Answers are refused until the next fit: they would be those of the old parameters.
        """
        return [
            name
            for name, value in self.parameters_.items()
            if (now := getattr(self, name)) is not value and repr(now) != repr(value)
        ]

    def _promised_to(self) -> str | None:
        """Say whom the promise is made to, None if nothing is proven."""
        return "everyone together"

    def _describe_rows(self, rows: Rows) -> dict[str, Any]:
        """Return further columns of ``predict_table``."""
        return {}

    def _gives_pvalues(self) -> bool:
        """Tell whether the calibration to come will have p-values."""
        return True

    def _sets(self, rows: Rows, thresholds: FloatArray | None = None) -> BoolArray:
        """Return the sets of these rows, by their own thresholds unless others are given."""
        own = self.calibration_.thresholds(rows) if thresholds is None else thresholds
        own = np.broadcast_to(own, (len(rows), np.shape(own)[-1]))
        sets = np.empty((len(rows), rows.n_classes), dtype=bool)
        for place, part in rows.blocks():
            sets[place] = part.scores <= own[place]
        return self._never_empty(sets, rows)

    def _never_empty(self, sets: BoolArray, rows: Rows) -> BoolArray:
        """Give empty sets their most probable label, unless ``allow_empty``."""
        if not self.parameters_["allow_empty"]:
            empty = np.flatnonzero(~sets.any(axis=1))
            sets[empty, rows.top[0][empty]] = True
        return sets

    def _rows(
        self,
        X: Any,
        caller: str,
        proba: Any = None,
        sensitive_features: Any = None,
        ids: Any = None,
        **chance: Any,
    ) -> Rows:
        """Return the rows that a method was called with; ``chance`` tells what they are for."""
        self._check_fitted(caller)
        if is_frame(X):
            hidden_columns(self.estimator_, X)  # refuses a table without a column of probabilities
        X = validated_table(self, X, reset=False)
        given = given_proba(proba, X, self.classes_)
        kinds = getattr(self, "sensitive_kinds_", None)
        about = sensitive_beside(sensitive_features, X, kinds)
        check_strange(self.seen_values_, X, about)
        rows = self._as_rows(X, given=given, about=about, ids=checked_ids(X, ids), **chance)
        return rows if kinds is None or about is not None else rows.selecting(no_sensitive(kinds))

    def _as_rows(
        self, X: Any, codes: IntArray | None = None, *, ask: Any = None, **beside: Any
    ) -> Rows:
        """Return rows by the parameters of the fit; ``ask`` may tell other probabilities."""
        return Rows(
            X,
            ask or (lambda table: self._ask("predict_proba", table)),
            get_score(self.parameters_["conformity_score"]),
            self.parameters_["sensitive_features"],
            self.key_,
            codes,
            hidden=hidden_columns(self.estimator_, X),
            **beside,
        )

    def _ask(self, method: str, X: Any) -> Any:
        """Return what the estimator says about rows; if it refuses them, say so in one line."""
        X = in_order_of(self.estimator_, self._features(X))
        try:
            with asked(self.estimator_, X, "refuses these rows"):
                return getattr(self.estimator_, method)(X)
        except InvalidInputError as error:
            if "feature names" in str(error):  # scikit-learn tells which on further lines
                check_names(self.estimator_, X, "estimator")
            raise

    def _features(self, X: Any) -> Any:
        """Return what the estimator may read of X."""
        return without_columns(X, getattr(self, "excluded_", []))

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
