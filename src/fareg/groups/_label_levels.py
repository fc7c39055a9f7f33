"""An order of people for every label: who is worse off in one may be better off in another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fareg._validation import FloatArray, IntArray, require
from fareg.groups._levels import DisadvantageLevels


@dataclass(frozen=True, eq=False)
class LabelLevels:
    """Levels of people, label by label; each order is learned from rows of its label."""

    orders: tuple[DisadvantageLevels, ...]

    @property
    def n_levels(self) -> tuple[int, ...]:
        """Number of levels for every label."""
        return tuple(order.n_levels for order in self.orders)

    @property
    def disadvantage(self) -> tuple[Any, ...]:
        """What was learned for every label."""
        return tuple(order.disadvantage for order in self.orders)

    def levels(self, people: pd.DataFrame) -> IntArray:
        """Return the level of each row for every label, shape (n, n_labels)."""
        return np.column_stack([order.levels(people) for order in self.orders])

    def ranks(self, people: pd.DataFrame) -> FloatArray:
        """Return the rank of each row among the rows that taught, shape (n, n_labels)."""
        return np.column_stack([order.ranks(people) for order in self.orders])

    def check(self, people: pd.DataFrame) -> None:
        """Refuse parts that contradict each other, as those of an edited file."""
        require(isinstance(self.orders, tuple) and len(self.orders) > 0, "orders")
        for order in self.orders:
            require(isinstance(order, DisadvantageLevels), "orders")
            order.check(people)


def permutation_shares(predict: Any, people: pd.DataFrame, seed: int) -> pd.Series:
    """Return how much a prediction changes if each feature is shuffled among the rows, as shares.

    >>> people = pd.DataFrame({"a": [0.0, 1.0] * 9, "b": [0.0, 0.0, 1.0] * 6})
    >>> permutation_shares(lambda rows: rows["a"].to_numpy(), people, seed=0).to_dict()
    {'a': 1.0, 'b': 0.0}
    """
    rng = np.random.default_rng(seed)
    usual, changes = predict(people), {}
    for name in people:
        shuffled = people.copy()
        shuffled[name] = people[name].to_numpy()[rng.permutation(len(people))]
        changes[name] = float(np.abs(predict(shuffled) - usual).mean())
    return pd.Series(changes, dtype=np.float64) / (sum(changes.values()) or 1.0)
