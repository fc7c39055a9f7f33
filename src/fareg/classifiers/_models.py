"""The wrapped estimator: checks, training, probabilities; and which rows teach or calibrate."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn import get_config
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GroupKFold, GroupShuffleSplit, KFold, ShuffleSplit
from sklearn.pipeline import Pipeline
from sklearn.utils.metadata_routing import process_routing
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from fareg._columns import (
    column_names,
    columns_at,
    in_order,
    is_frame,
    selected_positions,
    take_rows,
)
from fareg._labels import label_codes
from fareg._levels import LevelCoding
from fareg._threads import few_threads
from fareg._validation import FaregError, FloatArray, IntArray, InvalidInputError, warn
from fareg._words import first_line
from fareg.calibration import Labelled
from fareg.classifiers._probabilities import ProbabilityColumns
from fareg.classifiers._rows import check_names

MAX_LEARNING_ROWS = 50_000  # more would not improve groups or regions
MIN_LEARNING_ROWS = 60  # with fewer, nothing is learned
MIN_LEARNING_CLUSTERS = 5  # at least one for each of the five folds, which hold whole clusters


def check_model(name: str, model: Any) -> None:
    """Refuse anything that is not a model: a class instead of an instance, a function, a name."""
    if isinstance(model, type) or not (hasattr(model, "fit") or hasattr(model, "predict_proba")):
        raise InvalidInputError(
            f"{name} must be a classifier with predict_proba or None, got {model!r}; pass one such "
            "as LogisticRegression(), or ProbabilityFunction(function, classes=[...])"
        )


def check_estimator(estimator: Any) -> Any:
    """Return an estimator if it has ``predict_proba`` and ``classes_``."""
    name = type(estimator).__name__
    if not hasattr(estimator, "predict_proba"):
        raise InvalidInputError(
            f"estimator must have predict_proba, got {name}; "
            "wrap it in sklearn's CalibratedClassifierCV"
        )
    if getattr(estimator, "classes_", None) is None:
        raise InvalidInputError(
            "estimator must have classes_, the label of each column of predict_proba, got "
            f"{name} without them; use ProbabilityFunction(model.predict_proba, classes=[...])"
        )
    return estimator


def is_trainable(estimator: Any) -> bool:
    """Return whether scikit-learn can clone a model and train it."""
    return hasattr(estimator, "fit") and hasattr(estimator, "get_params")


def is_given(estimator: Any) -> bool:
    """Return whether there is nothing to train: a frozen model, columns, or no trainable model.

    Examples
    --------
    >>> from sklearn.dummy import DummyClassifier
    >>> is_given(DummyClassifier()), is_given(FrozenEstimator(DummyClassifier()))
    (False, True)
    """
    is_fixed = isinstance(estimator, FrozenEstimator | ProbabilityColumns)
    return is_fixed or not is_trainable(estimator)


def is_fitted(estimator: Any) -> bool:
    """Return whether an estimator was trained, or needs no training."""
    if not is_trainable(estimator):
        return True
    try:
        check_is_fitted(estimator)
    except (NotFittedError, TypeError):
        return False
    return True


def unfrozen(estimator: Any) -> Any:
    """Return the model inside a ``FrozenEstimator``; return any other model unchanged."""
    return estimator.estimator if isinstance(estimator, FrozenEstimator) else estimator


def hidden_columns(estimator: Any, names: Iterable[Any]) -> tuple[str, ...]:
    """Return the columns of a table that hold the probabilities of an estimator.

    Examples
    --------
    >>> from fareg import ProbabilityColumns
    >>> hidden_columns(ProbabilityColumns(["p_no", "p_yes"]), ["age", "p_no", "p_yes"])
    ('p_no', 'p_yes')
    """
    model = unfrozen(estimator)
    if not isinstance(model, ProbabilityColumns):
        return ()
    names, columns = list(names), [c for c in model.columns_.values() if c is not None]
    return tuple(names[p] for p in selected_positions(names, columns, "ProbabilityColumns"))


def routed_weights(clf: Any, sample_weight: Any, n: int) -> Any:
    """Return the weights for training the estimator of a classifier.

    With scikit-learn's metadata routing, an estimator gets weights only if it requests them.
    """
    try:
        weights = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError):
        weights = np.full(1, np.nan)
    if weights.shape != (n,) or not np.isfinite(weights).all() or (weights < 0).any():
        raise InvalidInputError(
            f"sample_weight must hold {n} finite numbers of at least 0, one per row of X"
        )
    if get_config()["enable_metadata_routing"]:
        return process_routing(clf, "fit", sample_weight=weights).estimator.fit.get("sample_weight")
    return weights


def refuse_weights(sample_weight: Any) -> None:
    """Refuse weights where nothing is trained."""
    if sample_weight is not None:
        raise InvalidInputError(
            "sample_weight cannot weight calibration rows, because no promise is proven for "
            "weighted ranks; leave it out, or call fit with an estimator to train, which uses it"
        )


def _weight_name(estimator: Any) -> str:
    """Return the argument of ``fit`` that takes weights; in a pipeline, that of its last step."""
    if get_config()["enable_metadata_routing"]:  # the steps themselves request weights
        return "sample_weight"
    if isinstance(estimator, Pipeline):
        name, last = estimator.steps[-1]
        return f"{name}__{_weight_name(last)}"
    if not has_fit_parameter(estimator, "sample_weight"):
        raise InvalidInputError(
            f"{type(estimator).__name__} takes no training weights; leave them out, or choose "
            "another estimator"
        )
    return "sample_weight"


@contextmanager
def _clear_errors(estimator: Any, X: Any, refusal: str) -> Iterator[None]:
    """Run an estimator on rows; turn an error of its own into one clear sentence."""
    try:
        with few_threads(X):
            yield
    except FaregError:
        raise
    except (ValueError, TypeError) as error:
        name, reason = type(unfrozen(estimator)).__name__, first_line(error).rstrip(".")
        if "feature names" in reason:  # scikit-learn lists them on further lines
            check_names(estimator, X, "estimator")
        raise InvalidInputError(
            f"the estimator {name} {refusal}: {reason}; "
            "mend the rows, or add a step that does, with sklearn.pipeline.make_pipeline"
        ) from error


def trained(estimator: Any, X: Any, y: Any, weights: Any = None) -> Any:
    """Train an estimator; if it refuses the rows, raise one clear sentence."""
    options = {} if weights is None else {_weight_name(estimator): weights}
    with _clear_errors(estimator, X, f"could not be trained on {len(y)} of the rows"):
        return check_estimator(estimator.fit(X, y, **options))


def without_columns(X: Any, excluded: Sequence[int]) -> Any:
    """Return a table without the columns at these positions."""
    if not excluded:
        return X
    return columns_at(X, [p for p in range(len(column_names(X))) if p not in excluded])


def ask(estimator: Any, X: Any, excluded: Sequence[int] = (), method: str = "predict_proba") -> Any:
    """Return the answer of a fitted estimator; if it refuses the rows, raise one clear sentence.

    ``excluded`` are the positions of columns that it must not read.
    """
    X = without_columns(X, excluded)
    if is_frame(X):  # in the order that the estimator was fitted with, if it has names
        X = in_order(X, getattr(estimator, "feature_names_in_", None))
    with _clear_errors(estimator, X, "refuses these rows"):
        return getattr(estimator, method)(X)


def out_of_fold_proba(
    estimator: Any,
    X: Any,
    y: Any,
    classes: Any,
    *,
    cv: int,
    clusters: Any,
    seed: int,
    weights: Any = None,
) -> FloatArray:
    """Return probabilities of each row from an estimator that was trained without its fold.

    Folds are drawn at random; rows of one cluster stay in one fold. The estimator is trained once
    per fold, with ``weights``. A class without training rows gets probability zero in that fold.
    If all rows are in one cluster, nothing can be trained, and all classes are equally probable.

    Returns
    -------
    proba : ndarray of shape (n_samples, n_classes)
        Columns in the order of ``classes``.

    Examples
    --------
    >>> from sklearn.dummy import DummyClassifier
    >>> y, X = np.array([0, 1] * 10), np.zeros((20, 1))
    >>> out_of_fold_proba(DummyClassifier(), X, y, [0, 1], cv=5, clusters=None, seed=0).shape
    (20, 2)
    """
    n_units = len(y) if clusters is None else len(np.unique(clusters))
    if n_units < 2:
        return np.full((len(y), len(classes)), 1 / len(classes))
    fold_class: Any = KFold if clusters is None else GroupKFold
    folds = fold_class(n_splits=min(cv, n_units), shuffle=True, random_state=seed)
    proba = np.zeros((len(y), len(classes)))
    for train, test in folds.split(np.zeros(len(y)), groups=clusters):
        present = np.unique(y[train])
        if len(present) == 1:  # many estimators refuse to learn a single class
            proba[np.ix_(test, label_codes(present, classes))] = 1.0
            continue
        fold_weights = None if weights is None else weights[train]
        fitted = trained(clone(estimator), take_rows(X, train), y[train], fold_weights)
        columns = label_codes(fitted.classes_, classes)
        proba[np.ix_(test, columns)] = ask(fitted, take_rows(X, test))
    return proba


@dataclass(frozen=True, eq=False)
class Training:
    """Rows that do not calibrate: those that trained the estimator, or ``X_learn``.

    Examples
    --------
    >>> people = pd.DataFrame({"age": [20.0, 70.0]})
    >>> Training(people).rows is None  # without labels and probabilities, they cannot teach
    True
    """

    people: pd.DataFrame  # their sensitive columns
    rows: Labelled | None = None  # with out-of-fold probabilities, if they may teach


def split_rows(n_rows: int, share: float, clusters: Any, seed: int) -> tuple[IntArray, IntArray]:
    """Divide row numbers at random into two parts; the second holds the given share.

    Rows of one cluster stay in one part.

    Examples
    --------
    >>> first, second = split_rows(10, 0.3, None, seed=0)
    >>> len(first), len(second)
    (7, 3)
    """
    n_units = n_rows if clusters is None else len(np.unique(clusters))
    unit = "rows" if clusters is None else "clusters"
    if n_units < 2:
        got = "sample" if clusters is None else "cluster"
        raise InvalidInputError(
            f"fit needs at least 2 {unit} to split, got {n_units} {got}; "
            f"pass more {unit}, or conformalize a fitted estimator"
        )
    if math.ceil(share * n_units) >= n_units:
        raise InvalidInputError(
            f"calibration_size={share:g} leaves none of {n_units} {unit} to train on; "
            "choose a smaller share, such as 0.5"
        )
    split_class: Any = ShuffleSplit if clusters is None else GroupShuffleSplit
    splitter = split_class(1, test_size=share, random_state=seed)
    first, second = next(splitter.split(np.zeros(n_rows), groups=clusters))
    return first, second


def learn_categories(rows: Labelled, training: Training | None) -> LevelCoding:
    """Find the categories of the sensitive features; quartiles are those of the training rows."""
    return LevelCoding.learn(rows.people, None if training is None else training.people)


def divide_rows(
    rows: Labelled, training: Training | None, learn_from: str, key: int, aim: str
) -> tuple[Labelled, Labelled]:
    """Return the learning rows, in random order, and the calibration rows.

    "train" learns from ``training``, "split" from half of ``rows`` (of whole clusters, if there are
    clusters), "auto" from ``training`` if it can teach, otherwise from half of ``rows``. If too few
    rows or clusters could teach, none do: all rows calibrate, with a warning that names the ``aim``
    of the learning. ``key`` seeds the order.

    Examples
    --------
    >>> from fareg.calibration import Labelled
    >>> nothing = np.zeros(80)
    >>> people = pd.DataFrame({"age": nothing})
    >>> rows = Labelled(people, nothing, np.zeros(80, dtype=int), 2, nothing, nothing)
    >>> learning, calibrating = divide_rows(rows, None, "split", 0, "look for a group")
    >>> len(learning), len(calibrating)
    (40, 40)
    """
    labelled = None if training is None or learn_from == "split" else training.rows
    source = rows if labelled is None else labelled
    n, rng = len(source), np.random.default_rng(key)
    order = rng.permutation(n)
    units = {"rows": (n, MIN_LEARNING_ROWS)}
    if source.clusters is not None:  # a split leaves half of them to calibrate
        minimum = MIN_LEARNING_CLUSTERS * (2 if labelled is None else 1)
        units = {"clusters": (source.n_people, minimum), **units}
    for unit, (n_units, minimum) in units.items():
        if n_units < minimum:
            kind = "calibration rows" if labelled is None else "learning rows"
            kind = kind if unit == "rows" else f"{unit} of {kind}"
            warn(
                f"{n_units} {kind} are too few to {aim} (fewer than {minimum}): sets are those of "
                f"SplitConformalClassifier; give more {unit}"
            )
            return source.take(order[:0]), rows
    if labelled is not None:
        return source.take(order[:MAX_LEARNING_ROWS]), rows
    n_learn = min(n // 2, MAX_LEARNING_ROWS)
    teaches = np.arange(n) < n_learn
    if rows.clusters is not None:  # as many whole clusters as hold about that many rows
        codes, distinct = pd.factorize(rows.clusters)
        n_teach = max(MIN_LEARNING_CLUSTERS, n_learn * len(distinct) // n)
        teaches = (rng.permutation(len(distinct)) < n_teach)[codes[order]]
    return rows.take(order[teaches][:MAX_LEARNING_ROWS]), rows.take(order[~teaches])
