"""The union over random groups, Eq. (Construct) of the paper.

Row i joins draw t of the group with probability ``q_i``, ``s_it ~ Bernoulli(q_i)``, and

    C(x) = {y : V(x, y) <= max(eta_D, max_{t : s_t(x) = 1} eta_t)},

where ``eta_t`` is the conformal quantile of the members of draw t and ``eta_D`` that of all rows.
Sets of one score are nested in the threshold, so this is the union of the sets of all these groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from fareg._rows import row_draws
from fareg._validation import BoolArray, FloatArray, InvalidInputError, require
from fareg.calibration import Batch, Calibration, Labelled, Sample, further_uniforms
from fareg.pvalues import CalibrationScores

MAX_TABLES = 10**7  # draws times separately calibrated labels
DRAW = 1  # the purpose of a row's further random number


@dataclass(frozen=True, eq=False)
class DrawnGroups(Calibration):
    """Everyone and some random groups, each calibrated on its own members.

    ``P(Y in C(X)) >= 1 - alpha``. If the learner was fitted on other rows, also
    ``P(Y in C(X) | s_t = 1) >= 1 - alpha`` for every draw t. The paper learns and calibrates on the
    same rows, so only the first is proven there.
    """

    learner: Any  # fitted; ``predict(people)`` returns memberships in [0, 1]
    sample: Sample
    members: BoolArray  # (n_draws, n) whether each calibration row joined each draw
    alpha: float
    tables: tuple[CalibrationScores, ...] = field(init=False, repr=False)  # everyone, then draws
    quantiles: FloatArray = field(init=False, repr=False)  # (1 + n_draws, n_labels)

    def __post_init__(self) -> None:
        require(self.members.dtype == np.bool_ and self.members.ndim == 2, "members")
        require(self.members.shape[1] == len(self.sample), "members")
        require(len(self.members) * self.sample.n_labels <= MAX_TABLES, "members")
        labels, n_labels = self.sample.row_labels, self.sample.n_labels
        everyone = np.ones(len(self.sample), dtype=bool)
        groups = (everyone, *self.members)
        tables = tuple(self.sample.sorted(labels, n_labels, inside) for inside in groups)
        quantiles = np.stack([table.quantiles(self.alpha)[:-1] for table in tables])
        vars(self).update(tables=tables, quantiles=quantiles)

    @classmethod
    def fit(
        cls, learner: Any, rows: Labelled, alpha: float, *, n_draws: int, label_conditional: bool
    ) -> Self:
        """Draw groups of labelled rows by their membership, and calibrate each of them."""
        sample = Sample.from_rows(rows, label_conditional=label_conditional)
        return cls(learner, sample, drawn_members(learner, rows, n_draws), alpha)

    @property
    def n_draws(self) -> int:
        """Number of random groups, the paper's T."""
        return len(self.members)

    def thresholds(self, batch: Batch) -> FloatArray:
        """Return the largest threshold of each row, shape (n_samples, n_labels)."""
        everyone, *drawn = self.quantiles
        largest = np.tile(everyone, (len(batch), 1))
        members = drawn_members(self.learner, batch, self.n_draws)
        for inside, eta in zip(members, drawn, strict=True):
            np.maximum(largest, eta, out=largest, where=inside[:, None])
        return largest

    def pvalues(self, batch: Batch) -> FloatArray:
        """Return the largest p-value of each row and label, shape (n_samples, n_classes)."""
        everyone, *drawn = self.tables
        labels = np.arange(self.sample.n_labels)
        p = everyone.pvalues(batch.scores, labels)
        members = drawn_members(self.learner, batch, self.n_draws)
        for inside, table in zip(members, drawn, strict=True):
            p[inside] = np.maximum(p[inside], table.pvalues(batch.scores[inside], labels))
        return p

    def full_sets(self) -> Iterator[tuple[str, int]]:
        """Yield the group and label of each set that is full because too few rows calibrate."""
        for t, label in np.argwhere(np.isinf(self.quantiles)).tolist():
            yield f"draw {t} of the group" if t else "all rows", label

    def first(self, n_draws: int) -> Self:
        """Return the same calibration with the first draws only."""
        if not 1 <= n_draws <= self.n_draws:
            raise InvalidInputError(
                f"n_draws must be from 1 to the {self.n_draws} draws that were made, got "
                f"{n_draws!r}; fit again for more"
            )
        return replace(self, members=self.members[:n_draws])


def drawn_members(learner: Any, rows: Batch | Labelled, n_draws: int) -> BoolArray:
    """Draw the members of each group, shape (n_draws, n).

    The random numbers of a row are independent of the one in its score.
    """
    q = learner.predict(rows.people)
    numbers = row_draws(further_uniforms(rows.u, DRAW), n_draws)
    return np.stack([number < q for number in numbers])
