"""What every loader and generator returns: features, labels and what is known about the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from fareg._validation import BoolArray, InvalidInputError, check_same_length


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
        Columns of ``X`` in which unfairness is looked for.
    group : bool ndarray of shape (n_samples,) or None
        The rows that are truly harder to classify; None if nobody knows. No method may learn from
        it: it is there to check what was found.
    name : str
        What to call the data in a table or a plot.

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
        """Return rows, chosen by position, bool mask or slice and numbered afresh."""
        if not isinstance(rows, slice) and len(rows) == 0:
            rows = slice(0)  # numpy would read an empty list as floats
        chosen = np.arange(len(self))[rows]
        X = self.X.iloc[chosen].reset_index(drop=True)
        group = None if self.group is None else self.group[chosen]
        return replace(self, X=X, y=self.y[chosen], group=group)
