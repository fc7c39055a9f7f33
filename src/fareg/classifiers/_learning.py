"""Rows that teach, and what they teach: out-of-fold probabilities, how well rows are covered."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, GroupShuffleSplit, KFold, ShuffleSplit

from fareg._columns import take_rows
from fareg._labels import label_codes
from fareg._levels import LevelCoding
from fareg._validation import BoolArray, FloatArray, IntArray, InvalidInputError, warn
from fareg.calibration import Rows
from fareg.classifiers._estimators import asked, weight_arguments
from fareg.groups import N_FOLDS
from fareg.pvalues import CalibrationScores
from fareg.scores import is_adaptive

MAX_LEARNING_ROWS = 50_000  # enough to learn groups or regions; the rest calibrates
MIN_LEARNING_ROWS = 60  # fewer rows are not worth learning from
MIN_LEARNING_CLUSTERS = N_FOLDS  # learning holds out whole clusters, one in each fold at least


def split_rows(n_rows: int, share: float, clusters: Any, seed: int) -> tuple[IntArray, IntArray]:
    """Divide row numbers at random into two parts, of which the second holds the given share.

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
        more = "more rows" if clusters is None else "rows of more clusters or no clusters"
        raise InvalidInputError(
            f"fit needs at least 2 {unit} to split, got {n_units} {got}; "
            f"pass {more}, or conformalize a fitted estimator"
        )
    if math.ceil(share * n_units) >= n_units:
        raise InvalidInputError(
            f"calibration_size={share:g} leaves none of {n_units} {unit} to train on; "
            "choose a smaller share, such as 0.5"
        )
    kind: Any = ShuffleSplit if clusters is None else GroupShuffleSplit
    splitter = kind(1, test_size=share, random_state=seed)
    first, second = next(splitter.split(np.zeros(n_rows), groups=clusters))
    return first, second


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
    progress: Callable[[int], Any] | None = None,
) -> FloatArray:
    """Return the probabilities of each row by an estimator that was trained without its fold.

    Folds are drawn at random; rows of one cluster stay in one fold. A class that a fold's training
    rows lack gets probability zero there. If all rows are one cluster, none is left to train on,
    and all classes are equally probable.

    Parameters
    ----------
    estimator : unfitted classifier
    X : frame or array of shape (n_samples, n_features)
    y : array of shape (n_samples,)
    classes : array of shape (n_classes,)
        The order of the columns.
    cv : int
        Number of folds, each of which costs one training.
    clusters : array of shape (n_samples,) or None
    seed : int
    weights : array of shape (n_samples,), default=None
        Training weights.
    progress : function, default=None
        Called with the number of each fold, from 1, before it is trained.

    Returns
    -------
    proba : ndarray of shape (n_samples, n_classes)

    Examples
    --------
    >>> from sklearn.dummy import DummyClassifier
    >>> y = np.array([0, 1] * 10)
    >>> X = np.zeros((20, 1))
    >>> out_of_fold_proba(DummyClassifier(), X, y, [0, 1], cv=5, clusters=None, seed=0).shape
    (20, 2)
    """
    n_units = len(y) if clusters is None else len(np.unique(clusters))
    if n_units < 2:
        return np.full((len(y), len(classes)), 1 / len(classes))
    kind: Any = KFold if clusters is None else GroupKFold
    folds = kind(n_splits=min(cv, n_units), shuffle=True, random_state=seed)
    proba = np.zeros((len(y), len(classes)))
    for number, (train, test) in enumerate(folds.split(np.zeros(len(y)), groups=clusters), 1):
        if progress is not None:
            progress(number)
        known = np.unique(y[train])
        if len(known) == 1:
            proba[np.ix_(test, label_codes(known, classes))] = 1.0
            continue
        own = weight_arguments(estimator, None if weights is None else weights[train])
        with asked(estimator, X, f"could not be trained on a fold of {len(train)} rows"):
            fitted = clone(estimator).fit(take_rows(X, train), y[train], **own)
            answer = fitted.predict_proba(take_rows(X, test))
        proba[np.ix_(test, label_codes(fitted.classes_, classes))] = answer
    return proba


def learn_levels(rows: Rows, training: Rows | None) -> LevelCoding:
    """Find the levels of the sensitive features.

    Numbers with many values are cut at quartiles of the training rows, if these are known.
    """
    return LevelCoding.learn(rows.columns, None if training is None else training.columns)


def divide_rows(
    rows: Rows, training: Rows | None, mode: str, key: int, aim: str
) -> tuple[Rows, Rows]:
    """Return the rows that teach, in random order, and the rows that calibrate.

    With too few rows or clusters to learn from, none teach and all calibrate, with a warning.

    Parameters
    ----------
    rows : Rows
        All calibration rows.
    training : Rows or None
        Rows that do not calibrate; they teach if they have labels.
    mode : {"auto", "train", "split", "reuse"}
        "train" learns from ``training``, "split" from half of ``rows`` (whole clusters, if they
        have some), "auto" from ``training`` where it can teach, "reuse" from all of ``rows``,
        which then calibrate as well.
    key : int
        Seeds the order.
    aim : str
        What the rows shall teach, for messages: "look for a group".

    Returns
    -------
    learning, rest : Rows

    Examples
    --------
    >>> import numpy as np
    >>> from fareg.calibration import Rows
    >>> from fareg.classifiers import divide_rows
    >>> rows = Rows(np.zeros((80, 2)), ask=None, score=None, selection=None, key=0)
    >>> learning, rest = divide_rows(rows, None, "split", 0, "look for a group")
    >>> len(learning), len(rest)
    (40, 40)
    """
    taught = training is not None and training.codes is not None
    if mode == "train" and not taught:
        raise InvalidInputError(
            'calibration="train" needs rows to learn from: call fit(X, y), pass X_learn, or choose '
            'calibration="split"'
        )
    from_training = taught and mode in ("auto", "train")
    teachers: Any = training if from_training else rows
    rng = np.random.default_rng(key)
    order = rng.permutation(len(teachers))
    is_split = mode != "reuse" and not from_training
    if teachers.clusters is not None and too_few_clusters(teachers.clusters, aim, split=is_split):
        return teachers.take(order[:0]), rows
    if mode == "reuse":
        shuffled = rows.take(order)
        return shuffled, shuffled
    if len(teachers) < MIN_LEARNING_ROWS:
        kind = "rows" if from_training else "calibration rows"
        warn(
            f"{len(teachers)} {kind} are too few to {aim} (fewer than {MIN_LEARNING_ROWS}): sets "
            "are those of SplitConformalClassifier; give more rows"
        )
        return teachers.take(order[:0]), rows
    if from_training:
        # Scores are computed before rows are taken, because folds divide the whole table.
        _ = teachers.own_scores
        return teachers.take(order[:MAX_LEARNING_ROWS]), rows
    n_learn = min(len(rows) // 2, MAX_LEARNING_ROWS)
    if rows.clusters is None:
        return rows.take(order[:n_learn]), rows.take(order[n_learn:])
    learn, rest = divide_clusters(rows.clusters, n_learn, rng)
    return rows.take(learn), rows.take(rest)


def too_few_clusters(clusters: Any, aim: str, *, split: bool) -> bool:
    """Tell whether there are too few clusters to learn from, with a warning.

    With ``split``, half of them are left to calibrate.
    """
    n_clusters, least = len(np.unique(clusters)), MIN_LEARNING_CLUSTERS * (2 if split else 1)
    if n_clusters < least:
        kind = "clusters of calibration rows" if split else "clusters of learning rows"
        warn(
            f"{n_clusters} {kind} are too few to {aim} (fewer than {least}): sets are those of "
            "SplitConformalClassifier; give more clusters"
        )
    return n_clusters < least


def divide_clusters(
    clusters: Any, n_learn: int, rng: np.random.Generator
) -> tuple[IntArray, IntArray]:
    """Divide row numbers at random into those of clusters that teach, and the others.

    As many clusters teach as have about ``n_learn`` rows, but not too few to learn from. Both parts
    are in random order.

    >>> learn, rest = divide_clusters(np.arange(30) // 3, 15, np.random.default_rng(0))
    >>> np.unique(learn // 3).tolist(), np.unique(rest // 3).tolist()
    ([2, 5, 6, 8, 9], [0, 1, 3, 4, 7])
    """
    number, distinct = pd.factorize(clusters)
    n_teach = max(MIN_LEARNING_CLUSTERS, n_learn * len(distinct) // len(number))
    order = rng.permutation(len(number))
    teaches = (rng.permutation(len(distinct)) < n_teach)[number[order]]
    return order[teaches][:MAX_LEARNING_ROWS], order[~teaches]


def coverage_to_learn(
    rows: Rows, base: Any, target: str, alpha: float, *, label_conditional: bool
) -> FloatArray:
    """Return how well each labelled row is covered, in [0, 1].

    The sets of a calibration ``base`` are meant, or the split conformal sets of these rows if it is
    None. The target "coverage" is 0 or 1 at the one level ``1 - alpha``, and "score" is an average
    over levels. With an adaptive score, no base and labels compared with each other,
    :func:`overconfidence` stands for the scores. If ``label_conditional``, rows are compared with
    those of the same label only. No set holds a label that the estimator does not know.
    """
    if not len(rows):
        return np.empty(0)
    scores, codes = rows.own_scores, rows.labels
    categories = codes if label_conditional else None
    if base is not None:
        thresholds = base.thresholds(rows)
        own = np.broadcast_to(thresholds, rows.scores.shape)[np.arange(len(codes)), codes]
        margin = np.full(len(codes), -np.inf)
        np.subtract(scores, own, out=margin, where=np.isfinite(own))
        is_covered = (margin <= 0).astype(np.float64)
        covered = is_covered if target == "coverage" else score_target(margin, categories, alpha)
    elif target == "coverage":
        covered = coverage_target(scores, categories, alpha)
    elif is_adaptive(rows.score) and not label_conditional:
        covered = (1 - overconfidence(rows)) / 1.25  # overconfidence lies in [-1/4, 1]
    else:
        covered = score_target(scores, categories, alpha)
    return np.where(codes >= 0, covered, 0.0)


def overconfidence(rows: Rows) -> FloatArray:
    """Return how much less probability each true label got than the probabilities expect.

    They expect ``sum_k p_k^2`` on average, so the difference to ``p_y`` has mean zero wherever they
    are true. There an adaptive score covers as promised, and it covers too little where the mean is
    positive. Only the mean tells: ranks of the difference would be high for everyone of whom the
    estimator is rightly sure. Unlike the score, the difference has no random part and is small in
    rows that tell little, so fewer rows teach the same. A label that the estimator does not know
    counts most.
    """
    gap = np.ones(len(rows))
    for place, part in rows.blocks():
        codes = part.labels
        own = part.proba[np.arange(len(codes)), codes]
        gap[place] = np.where(codes >= 0, (part.proba**2).sum(axis=1) - own, 1.0)
    return gap


def covered_by_split(rows: Rows, alpha: float) -> BoolArray:
    """Tell which labelled rows the split conformal sets of these very rows cover."""
    return (rows.labels >= 0) & (coverage_target(rows.own_scores, None, alpha) > 0)


def score_target(margin: FloatArray, categories: IntArray | None, alpha: float) -> FloatArray:
    """Return the share of levels t in [1 - 5 alpha, 1] at which each row is covered.

    A row is covered at level t if the rank of its margin, in (0, 1), is at most t. Ranks are taken
    within categories, if given.
    """
    own = np.zeros(len(margin)) if categories is None else categories
    alike = pd.Series(margin).groupby(own)
    rank = (alike.rank() / (alike.transform("size") + 1)).to_numpy()
    return np.clip((1 - rank) / min(1.0, 5 * alpha), 0.0, 1.0)


def coverage_target(scores: FloatArray, categories: IntArray | None, alpha: float) -> FloatArray:
    """Return 1 for rows whose scores the split conformal sets of these rows hold, else 0."""
    own = np.zeros(len(scores), dtype=np.int64) if categories is None else categories
    table = CalibrationScores.sort(scores, own, int(own.max(initial=0)) + 1)
    return (scores <= table.quantiles(alpha)[own]).astype(np.float64)
