"""Who learns from which rows: a part that trains, a part that teaches, a part that calibrates."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import GroupShuffleSplit, ShuffleSplit

from fareg._levels import LevelCoding
from fareg._validation import BoolArray, IntArray, InvalidInputError, warn
from fareg.calibration import Labelled, Sample

MAX_LEARNING_ROWS = 50_000  # enough to learn groups or regions; the rest calibrates
MIN_LEARNING_ROWS = 60  # fewer rows are not worth learning from
MIN_LEARNING_CLUSTERS = 5  # learning holds out whole clusters, one in each of five folds at least


@dataclass(frozen=True, eq=False)
class Training:
    """The rows that trained the estimator, or that came beside those that calibrate.

    Examples
    --------
    >>> people = pd.DataFrame({"age": [20.0, 70.0]})
    >>> Training(people).rows is None  # they say who there is, and cannot teach
    True
    """

    people: pd.DataFrame  # their sensitive columns
    rows: Labelled | None = None  # with probabilities out of fold, if these rows may teach


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
        raise InvalidInputError(
            f"fit needs at least 2 {unit} to split, got {n_units} {got}; "
            f"pass more {unit}, or conformalize a fitted estimator"
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


def learn_levels(rows: Labelled, training: Training | None) -> LevelCoding:
    """Find the levels of the sensitive features.

    Numbers with many values are cut at quartiles of the training rows, if these are known.
    """
    return LevelCoding.learn(rows.people, None if training is None else training.people)


def divide_rows(
    rows: Labelled, training: Training | None, learn_from: str, key: int, aim: str
) -> tuple[Labelled, Labelled]:
    """Return the rows that teach, in random order, and the rows that calibrate.

    With too few rows or clusters to learn from, none teach and all calibrate, with a warning.

    Parameters
    ----------
    rows : Labelled
        All calibration rows.
    training : Training or None
        Rows that do not calibrate; they teach if they are labelled.
    learn_from : {"auto", "train", "split"}
        "train" learns from ``training``, "split" from half of ``rows`` (whole clusters, if they
        have some), "auto" from ``training`` where it can teach.
    key : int
        Seeds the order.
    aim : str
        What the rows shall teach, for messages: "look for a group".

    Returns
    -------
    teachers, rest : Labelled

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from fareg.calibration import Labelled, Sample
    >>> from fareg.classifiers import divide_rows
    >>> nothing = np.zeros(80)
    >>> people = pd.DataFrame({"age": nothing})
    >>> rows = Labelled(people, nothing, np.zeros(80, dtype=int), 2, nothing, nothing)
    >>> teachers, rest = divide_rows(rows, None, "split", 0, "look for a group")
    >>> len(teachers), len(rest)
    (40, 40)
    """
    known = None if training is None or learn_from == "split" else training.rows
    teachers = rows if known is None else known
    n, rng = len(teachers), np.random.default_rng(key)
    order = rng.permutation(n)
    units = {"rows": (n, MIN_LEARNING_ROWS)}
    if teachers.clusters is not None:  # in a split, half of them are left to calibrate
        least = MIN_LEARNING_CLUSTERS * (2 if known is None else 1)
        units = {"clusters": (teachers.n_people, least), **units}
    for unit, (n_units, least) in units.items():
        if n_units < least:
            kind = "calibration rows" if known is None else "learning rows"
            kind = kind if unit == "rows" else f"{unit} of {kind}"
            warn(
                f"{n_units} {kind} are too few to {aim} (fewer than {least}): sets are those of "
                f"SplitConformalClassifier; give more {unit}"
            )
            return teachers.take(order[:0]), rows
    if known is not None:
        return teachers.take(order[:MAX_LEARNING_ROWS]), rows
    n_learn = min(n // 2, MAX_LEARNING_ROWS)
    teaches = np.arange(n) < n_learn
    if rows.clusters is not None:  # as many whole clusters as have about that many rows
        number, distinct = pd.factorize(rows.clusters)
        n_teach = max(MIN_LEARNING_CLUSTERS, n_learn * len(distinct) // n)
        teaches = (rng.permutation(len(distinct)) < n_teach)[number[order]]
    return rows.take(order[teaches][:MAX_LEARNING_ROWS]), rows.take(order[~teaches])


def shortfall(rows: Labelled, alpha: float, *, adaptive: bool, label_conditional: bool) -> Any:
    """Return how badly each row is covered, shape (n,) in [0, 1], larger is worse.

    It is the share of confidence levels in ``[1 - 5 alpha, 1]`` at which split conformal sets of
    these rows miss the label: the aim is that of the 0/1 indicator at ``1 - alpha``, with far less
    noise. If ``label_conditional``, rows are compared with those of the same label.

    An adaptive score covers as promised wherever the probabilities are true, and too little where
    the true label gets less probability than they expect, ``sum_k p_k^2 - p_y > 0`` on average. So
    this surprise stands for the score there: it has no random part and is small in rows that say
    little, so fewer rows teach the same.
    """
    if adaptive and not label_conditional:
        return np.where(rows.y >= 0, (rows.surprise + 0.25) / 1.25, 1.0)  # it is at least -1/4
    alike = pd.Series(rows.score).groupby(rows.y if label_conditional else np.zeros(len(rows)))
    rank = (alike.rank() / (alike.transform("size") + 1)).to_numpy()
    missed = 1 - np.clip((1 - rank) / min(1.0, 5 * alpha), 0.0, 1.0)
    return np.where(rows.y >= 0, missed, 1.0)


def covered_by_split(rows: Labelled, alpha: float) -> BoolArray:
    """Say which rows the split conformal sets of these very rows cover."""
    threshold = Sample.of(rows, label_conditional=False).split_thresholds(alpha)[0]
    return (rows.y >= 0) & (rows.score <= threshold)
