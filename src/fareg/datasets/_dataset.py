"""The data set that every loader and generator returns, and the paper's label noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from fareg._validation import (
    BoolArray,
    IntArray,
    InvalidInputError,
    check_count,
    check_same_length,
)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A labelled table, the names of its sensitive columns and, if known, its hard group.

    Parameters
    ----------
    X : DataFrame of shape (n_samples, n_features)
        Features, numbers and text alike.
    y : ndarray of shape (n_samples,)
        Labels.
    sensitive : tuple of str
        Columns of ``X`` that may define unfairly treated groups.
    group : bool ndarray of shape (n_samples,) or None
        The rows that are truly harder to classify; None if unknown. No method may learn from it: it
        serves to check results.
    name : str
        Name of the data in tables and plots.

    Examples
    --------
    >>> from fareg.datasets import make_synthetic
    >>> data = make_synthetic(100, random_state=0)
    >>> data.sensitive
    ('Color', 'Gender', 'Age Group', 'Region')
    >>> len(data), bool(data.take(data.group).group.all())
    (100, True)
    """

    X: pd.DataFrame
    y: npt.NDArray[Any]
    sensitive: tuple[str, ...]
    group: BoolArray | None
    name: str

    def __post_init__(self) -> None:
        check_same_length(X=self.X, y=self.y)
        unknown = [column for column in self.sensitive if column not in self.X.columns]
        if unknown:
            raise InvalidInputError(
                f"sensitive must name columns of X, got {', '.join(unknown)}; "
                f"columns: {', '.join(map(str, self.X.columns))}"
            )
        if self.group is not None:
            check_same_length(X=self.X, group=self.group)
            if self.group.dtype != np.bool_:
                raise InvalidInputError(
                    f"group must be a bool array, got dtype {self.group.dtype}; "
                    "use group.astype(bool)"
                )

    def __len__(self) -> int:
        return len(self.X)

    def take(self, rows: npt.NDArray[Any] | Sequence[int] | slice) -> Dataset:
        """Return rows, chosen by position, bool mask or slice, with a new index."""
        if not isinstance(rows, slice) and len(rows) == 0:
            rows = slice(0)  # numpy would read an empty list as floats
        chosen = np.arange(len(self))[rows]
        X = self.X.iloc[chosen].reset_index(drop=True)
        group = None if self.group is None else self.group[chosen]
        return replace(self, X=X, y=self.y[chosen], group=group)


def inject_label_noise(
    y: npt.ArrayLike,
    group: npt.ArrayLike,
    *,
    low: float = -4,
    high: float = 4,
    n_classes: int | None = None,
    random_state: int | np.random.Generator | None = None,
) -> IntArray:
    """Add uniform noise to the labels of a group, round, and clip to the known classes.

    Labels outside the group stay as they are. The defaults are the paper's for Nursery and
    ACSIncome.

    Parameters
    ----------
    y : array of int of shape (n_samples,)
        Labels in ``0, ..., n_classes - 1``.
    group : array of bool of shape (n_samples,)
        The rows with noise.
    low, high : float, default -4 and 4
        The noise is Uniform(low, high).
    n_classes : int, optional
        Number of classes; by default the largest label plus one.
    random_state : int, Generator or None, default None
        Seed of the noise.

    Returns
    -------
    ndarray of int of shape (n_samples,)
        A new array.

    Examples
    --------
    >>> import numpy as np
    >>> from fareg.datasets import inject_label_noise
    >>> y = np.array([0, 1, 2, 3, 0, 1, 2, 3])
    >>> group = np.array([False] * 4 + [True] * 4)
    >>> noisy = inject_label_noise(y, group, random_state=0)
    >>> noisy[:4].tolist(), bool(noisy.min() >= 0 and noisy.max() <= 3)
    ([0, 1, 2, 3], True)
    """
    labels, noisy_rows = np.asarray(y), np.asarray(group)
    check_same_length(y=labels, group=noisy_rows)
    if noisy_rows.dtype != np.bool_:
        raise InvalidInputError(f"group must hold bools, got dtype {noisy_rows.dtype}")
    if not low <= high:
        raise InvalidInputError(f"low must be <= high, got low={low} and high={high}")
    if labels.dtype.kind not in "iu":
        raise InvalidInputError(
            f"y must hold whole numbers 0, 1, ..., got dtype {labels.dtype}; "
            "code text labels with numpy.unique(y, return_inverse=True)[1]"
        )
    largest = int(labels.max(initial=0))
    n_classes = largest + 1 if n_classes is None else check_count("n_classes", n_classes)
    if labels.min(initial=0) < 0 or largest >= n_classes:
        raise InvalidInputError(
            f"y must lie in 0, ..., {n_classes - 1}, "
            f"got {int(labels.min())} to {largest}; check n_classes"
        )
    noise = np.random.default_rng(random_state).uniform(low, high, size=len(labels))
    moved = np.clip(np.rint(labels + noise), 0, n_classes - 1)
    return np.where(noisy_rows, moved, labels).astype(np.int64)
