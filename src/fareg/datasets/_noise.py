"""Label noise confined to a group: the way the paper makes real data unfair on purpose."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fareg._validation import IntArray, InvalidInputError, check_count, check_same_length


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
        The rows that get noise.
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
    n_classes = _check_classes(labels, n_classes)
    noise = np.random.default_rng(random_state).uniform(low, high, size=len(labels))
    moved = np.clip(np.rint(labels + noise), 0, n_classes - 1)
    return np.where(noisy_rows, moved, labels).astype(np.int64)


def _check_classes(labels: npt.NDArray[Any], n_classes: int | None) -> int:
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
    return n_classes
