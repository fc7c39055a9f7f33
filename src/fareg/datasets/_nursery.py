"""The UCI Nursery data, regenerated from the decision model that produced it."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd

from fareg._validation import IntArray
from fareg.datasets._dataset import Dataset, inject_label_noise

ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "parents": ("usual", "pretentious", "great_pret"),
    "has_nurs": ("proper", "less_proper", "improper", "critical", "very_crit"),
    "form": ("complete", "completed", "incomplete", "foster"),
    "children": ("1", "2", "3", "more"),
    "housing": ("convenient", "less_conv", "critical"),
    "finance": ("convenient", "inconv"),
    "social": ("nonprob", "slightly_prob", "problematic"),
    "health": ("recommended", "priority", "not_recom"),
}

# The model grades three concepts, 0 is best: the employment of the parents, the structure and
# finances of the family, and its social and health picture.
EMPLOY = np.array([[0, 1, 1, 2, 3], [1, 1, 2, 3, 3], [2, 2, 3, 3, 3]])
STRUCTURE = np.array([[0, 1, 2, 2], [1, 1, 2, 2], [1, 2, 2, 2], [2, 2, 2, 2]])
STRUCT_FINAN = np.array(
    [[[0, 1], [1, 1], [1, 1]], [[1, 1], [1, 1], [2, 2]], [[1, 2], [2, 2], [2, 2]]]
)
SOC_HEALTH = np.array([[0, 1, 2], [0, 1, 2], [1, 1, 2]])

SENSITIVE = tuple(name for name in ATTRIBUTES if name != "housing")


def load_nursery() -> Dataset:
    """Return the UCI Nursery data: 12,960 applications for nursery school, ranked in five classes.

    The file has one row for each combination of attributes, which determines the class, so the
    rows are generated, in UCI order, and nothing is downloaded.

    Returns
    -------
    Dataset
        ``X`` of shape (12960, 8), all text; ``y``, the class names; ``sensitive``, all columns but
        ``housing``; ``group``, the rows with ``finance`` inconv and ``parents`` usual or
        pretentious, whose labels the paper corrupts (`make_nursery_experiment` does it).

    Examples
    --------
    >>> from fareg.datasets import load_nursery
    >>> data = load_nursery()
    >>> data.X.shape
    (12960, 8)
    >>> sorted(set(data.y.tolist()))
    ['not_recom', 'priority', 'recommend', 'spec_prior', 'very_recom']
    """
    sizes = [range(len(values)) for values in ATTRIBUTES.values()]
    codes = np.array(list(itertools.product(*sizes)))
    X = pd.DataFrame(
        {
            name: np.array(values)[codes[:, j]].tolist()
            for j, (name, values) in enumerate(ATTRIBUTES.items())
        }
    )
    hard = (X["finance"] == "inconv") & X["parents"].isin(["usual", "pretentious"])
    group = hard.to_numpy(dtype=np.bool_)
    return Dataset(X=X, y=_classify(codes), sensitive=SENSITIVE, group=group, name="Nursery")


def make_nursery_experiment(
    *, label_noise: bool = True, random_state: int | np.random.Generator | None = None
) -> Dataset:
    """Return the Nursery data as the paper uses it: four classes, label noise in one group.

    The two ``recommend`` rows are dropped, the classes are coded alphabetically (``not_recom`` 0,
    ``priority`` 1, ``spec_prior`` 2, ``very_recom`` 3), and `inject_label_noise` with its defaults
    corrupts the labels of families with inconvenient finances and usual or pretentious parents.

    Parameters
    ----------
    label_noise : bool, default True
        Whether to corrupt the labels of the group.
    random_state : int, Generator or None, default None
        Seed of the noise.

    Returns
    -------
    Dataset
        ``X`` of shape (12958, 8), ``y`` of int in 0, ..., 3.

    Examples
    --------
    >>> from fareg.datasets import make_nursery_experiment
    >>> data = make_nursery_experiment(random_state=0)
    >>> data.X.shape, sorted(set(data.y.tolist())), int(data.group.sum())
    ((12958, 8), [0, 1, 2, 3], 4320)
    """
    full = load_nursery()
    kept = full.take(full.y != "recommend")
    codes: IntArray = np.unique(kept.y, return_inverse=True)[1].astype(np.int64)
    if label_noise:
        group = np.asarray(kept.group)
        codes = inject_label_noise(codes, group, n_classes=4, random_state=random_state)
    name = "Nursery with label noise" if label_noise else "Nursery, four classes"
    return replace(kept, y=codes, name=name)


def _classify(codes: IntArray) -> np.ndarray[tuple[int], np.dtype[np.str_]]:
    parents, has_nurs, form, children, housing, finance, social, health = codes.T
    employ = EMPLOY[parents, has_nurs]
    family = STRUCT_FINAN[STRUCTURE[form, children], housing, finance]
    picture = SOC_HEALTH[social, health]
    rules = [
        (picture == 2, "not_recom"),
        (employ + family + picture >= 5, "spec_prior"),
        ((picture == 1) | (employ >= 2) | (family == 2), "priority"),
        (employ + family == 0, "recommend"),
    ]
    conditions, classes = zip(*rules, strict=True)
    return np.select(conditions, classes, default="very_recom")
