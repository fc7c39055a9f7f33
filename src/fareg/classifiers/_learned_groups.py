"""What a classifier with learned groups answers: levels, tables of groups, explanations, plots."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from fareg._validation import FloatArray, IntArray, InvalidInputError
from fareg.calibration import Rows
from fareg.classifiers._base import ConformalClassifier
from fareg.classifiers._naming import NamedGroup
from fareg.classifiers._plot_levels import plot_thresholds_and_coverage
from fareg.classifiers._strata import GroupTable, steps_of
from fareg.classifiers._views import DisadvantageLevels, division, membership, own_part
from fareg.groups import Explanation, GroupLearner, Rule, explain_groups, plot_membership
from fareg.metrics import is_covered


class LearnedGroups(ConformalClassifier):
    """The methods that ask a fitted ``FaReGClassifier`` about its groups.

    What they need is left by its ``_calibrate``: the calibration, and what is declared here.
    """

    construction: str
    named_groups_: tuple[NamedGroup, ...]
    reference_: pd.DataFrame  # learning rows that explain the groups
    rule_: Rule

    def predict_group(self, X: Any, *, sensitive_features: Any = None) -> FloatArray:
        """Return how disadvantaged each row is, shape (n_samples,) in [0, 1].

        With levels, this is the share of the learning rows that are at most as disadvantaged: a
        row with 0.95 is worse off than 95% of them. Otherwise it is the membership in the
        disadvantaged group.
        """
        rows = self._rows(X, "predict_group", sensitive_features=sensitive_features)
        if self._has_levels:
            return division(self.calibration_).ranks(rows)
        return membership(self.learner_, rows)

    def predict_level(self, X: Any, *, sensitive_features: Any = None) -> IntArray:
        """Return the disadvantage level of each row, from 0, the least disadvantaged.

        With ``construction="partition"`` and ``"union"``, 1 is the discovered group and 0 the rest.
        """
        rows = self._rows(X, "predict_level", sensitive_features=sensitive_features)
        return self._levels(rows)

    def explain(self) -> Explanation:
        """Say which features make the group, or the levels, and how.

        Returns
        -------
        Explanation
            ``rule``, ``features`` and ``ranking`` (by permutation); where a network alone made the
            groups, as in :meth:`FaReGClassifier.paper`, the ranking by latent perturbation and the
            ``traversal`` of its latent too.
        """
        self._check_fitted("explain")
        by_network = self._network_made_groups
        seed = self.key_ % 2**32
        return explain_groups(
            self.learner_, self.reference_, self.rule_, seed, by_network=by_network
        )

    def plot_groups(
        self, *, features: tuple[str, str] | None = None, steps: tuple[float, ...] = (0, 1, 2)
    ) -> Any:
        """Draw membership over two features while the latent of a network is perturbed.

        A network alone must have made the groups, as in :meth:`FaReGClassifier.paper`.

        Parameters
        ----------
        features : pair of names, default=None
            None for the two that matter most.
        steps : tuple of float, default=(0, 1, 2)
            Perturbations of the influential latent dimension, in units of its spread.
        """
        self._check_fitted("plot_groups")
        if not self._network_made_groups:
            used = ", ".join(self.learner_.disadvantage_.weights) or "none, for nothing was found"
            raise InvalidInputError(
                "plot_groups draws the membership that a network learned, and here other models "
                f"made the levels: {used}; see explain().ranking and plot_levels(X, y), or fit "
                "FaReGClassifier.paper()"
            )
        shown: Any = features
        if features is None and self.learner_.found_:
            shown = tuple(map(str, self.explain().ranking.index[:2]))
        return plot_membership(self.learner_, self.reference_, shown, steps)

    def plot_levels(
        self,
        X: Any,
        y: Any,
        *,
        proba: Any = None,
        sensitive_features: Any = None,
        ids: Any = None,
    ) -> Any:
        """Draw thresholds and coverage against the level of disadvantage.

        Beside the sets stand split conformal ones with the same calibration rows.

        Parameters
        ----------
        X : frame or array of shape (n_samples, n_features)
            Rows that took no part in training and calibration.
        y : array of shape (n_samples,)
        proba, sensitive_features, ids : default=None
            As in :meth:`predict_set`.

        Returns
        -------
        matplotlib.figure.Figure
            Thresholds on the left, coverage with 95% intervals on the right.
        """
        rows = self._rows(X, "plot_levels", proba, sensitive_features, ids)
        if not self._has_levels:
            raise InvalidInputError(
                'plot_levels needs construction="levels", got '
                f'"{self.parameters_["construction"]}"; '
                "see plot_groups for a group and its complement"
            )
        own = own_part(self.calibration_)
        sets = {"before": self._sets(rows, own.split_thresholds), "after": self._sets(rows)}
        covered = {
            moment: is_covered(y, some, classes=self.classes_) for moment, some in sets.items()
        }
        return plot_thresholds_and_coverage(own, own.leveler.levels(rows), covered, self.classes_)

    @property
    def groups_(self) -> pd.DataFrame:
        """The named groups, then those who share a threshold, the worst off first."""
        if "groups_" not in vars(self):
            raise AttributeError("groups_ is known after fit or conformalize")
        return GroupTable(vars(self)["groups_"])

    @groups_.setter
    def groups_(self, table: pd.DataFrame) -> None:
        self.__dict__["groups_"] = table  # as a plain frame, for model files

    @property
    def learner_(self) -> GroupLearner:
        """The fitted learner."""
        return division(self.calibration_).learner

    @property
    def thresholds_(self) -> Any:
        """Thresholds per view and category, or per level and label."""
        own = own_part(self.calibration_)
        return own.level_thresholds if self._has_levels else own.quantiles

    @property
    def _has_levels(self) -> bool:
        return isinstance(division(self.calibration_), DisadvantageLevels)

    @property
    def _network_made_groups(self) -> bool:
        """Whether what the network learned is what divides people, not one voice among several."""
        return not self.learner_.members or not self._has_levels

    def _levels(self, rows: Rows) -> IntArray:
        return steps_of(own_part(self.calibration_), rows)

    def _promised_to(self) -> str | None:
        if self.parameters_["calibration"] == "reuse":
            return None
        return {
            "levels": "everyone, for the worst off, and for every degree of disadvantage between",
            "partition": "the discovered group and for the rest",
            "union": "every group that was drawn, and for everyone together",
        }[self.parameters_["construction"]]

    def _describe_rows(self, rows: Rows) -> dict[str, Any]:
        group = np.full(len(rows), "", dtype=object)
        for named in self.named_groups_[::-1]:  # the first, most significant group is written last
            group[named.rule.inside(rows.columns)] = named.rule.text
        return {"level": self._levels(rows), "group": group}
