"""Coverage and size of prediction sets, with scorers for scikit-learn and metrics for fairlearn."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from sklearn.pipeline import Pipeline

from fareg._labels import check_marks, read_set_table
from fareg._validation import BoolArray, InvalidInputError, warn


def is_covered(y: Any, sets: Any, *, classes: Any = None) -> BoolArray:
    """Return whether the label of each row is in its prediction set.

    Parameters
    ----------
    y : array of shape (n_samples,)
        True labels.
    sets : bool array of shape (n_samples, n_classes) or (n_samples, n_classes, 1)
        Prediction sets, one column per class. The column names of a frame are the classes.
    classes : array of shape (n_classes,), optional
        The label of each column. None takes the column names of a frame, or the sorted labels of
        ``y`` if there is one per column.

    Returns
    -------
    ndarray of shape (n_samples,)
        A label that is not among the classes is not covered; a warning says so.

    Examples
    --------
    >>> is_covered(["cat", "dog"], [[True, False], [True, False]], classes=["cat", "dog"])
    array([ True, False])
    """
    table = read_set_table(sets, y, classes)
    for note in table.notes:
        warn(note)
    return table.covered


def coverage_score(y: Any, sets: Any, *, classes: Any = None) -> float:
    """Return the share of labels that are in their prediction sets.

    Parameters
    ----------
    y, sets, classes
        As in :func:`is_covered`.

    Examples
    --------
    >>> coverage_score([0, 1], [[True, False], [True, False]])
    0.5
    """
    return float(is_covered(y, sets, classes=classes).mean())


def mean_set_size(sets: Any) -> float:
    """Return the mean number of labels in a prediction set.

    Parameters
    ----------
    sets
        As in :func:`is_covered`.

    Examples
    --------
    >>> mean_set_size([[True, True, False], [True, False, False]])
    1.5
    """
    return float(check_marks(sets).sum(axis=1).mean())


def coverage_scorer(estimator: Any, X: Any, y: Any) -> float:
    """Return the share of rows whose set, by a fitted conformal classifier, holds the label.

    Use it to check the promise, not to maximise it: full sets cover everything.

    Parameters
    ----------
    estimator : fitted conformal classifier, or Pipeline that ends with one
    X : frame or array of shape (n_samples, n_features)
    y : array of shape (n_samples,)

    Examples
    --------
    >>> from fareg import SplitConformalClassifier
    >>> from fareg.datasets import make_synthetic
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.model_selection import cross_validate
    >>> data = make_synthetic(600, random_state=0)
    >>> clf = SplitConformalClassifier(LogisticRegression(), random_state=0)
    >>> scores = cross_validate(clf, data.X.filter(like="Feature"), data.y, cv=2,
    ...                         scoring={"coverage": coverage_scorer, "size": mean_set_size_scorer})
    >>> bool((scores["test_coverage"] > 0.8).all()), bool((scores["test_size"] < -1).all())
    (True, True)
    """
    sets, classes = _sets(estimator, X)
    return coverage_score(y, sets, classes=classes)


def mean_set_size_scorer(estimator: Any, X: Any, y: Any = None) -> float:
    """Return minus the mean number of labels in the sets of a fitted conformal classifier.

    Coverage is promised for every wrapped estimator, so the best one has the smallest sets. A
    search maximises its score, hence the minus. Arguments are those of :func:`coverage_scorer`;
    ``y`` is ignored.

    Examples
    --------
    >>> from fareg import SplitConformalClassifier
    >>> from fareg.datasets import make_synthetic
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.model_selection import GridSearchCV
    >>> data = make_synthetic(600, random_state=0)
    >>> clf = SplitConformalClassifier(LogisticRegression(), random_state=0)
    >>> grid = {"estimator__C": [1e-6, 1.0]}
    >>> search = GridSearchCV(clf, grid, scoring=mean_set_size_scorer, cv=2)
    >>> search.fit(data.X.filter(like="Feature"), data.y).best_params_
    {'estimator__C': 1.0}
    """
    return -mean_set_size(_sets(estimator, X)[0])


def set_metrics(classes: Any) -> dict[str, Callable[[Any, Any], float]]:
    """Return coverage and mean size as functions for fairlearn's MetricFrame.

    Parameters
    ----------
    classes : array of shape (n_classes,)
        The label of each column of the sets: ``clf.classes_``.

    Returns
    -------
    dict
        ``coverage`` and ``mean_set_size``, both functions of ``y_true`` and ``y_pred``, where
        ``y_pred`` holds sets: a bool array of shape (n_samples, n_classes).

    Examples
    --------
    >>> metrics = set_metrics(["no", "yes"])
    >>> sets = [[True, False], [True, True]]
    >>> {name: metric(["no", "yes"], sets) for name, metric in metrics.items()}
    {'coverage': 1.0, 'mean_set_size': 1.5}
    """

    def size(y_true: Any, y_pred: Any) -> float:
        return mean_set_size(y_pred)

    return {"coverage": partial(coverage_score, classes=classes), "mean_set_size": size}


def _sets(estimator: Any, X: Any) -> tuple[BoolArray, Any]:
    """Return the sets of a classifier, or of the last step of a pipeline, and its classes."""
    while isinstance(estimator, Pipeline):
        X = estimator[:-1].transform(X) if len(estimator) > 1 else X
        estimator = estimator[-1]
    if not hasattr(estimator, "predict_set"):
        raise InvalidInputError(
            f"the scorer needs a conformal classifier, got {type(estimator).__name__}; wrap it, as "
            "in SplitConformalClassifier(estimator)"
        )
    return estimator.predict_set(X), estimator.classes_
