"""Partition learning conformal prediction: regions of the sensitive features, a quantile each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from fareg._validation import Count, IntArray, one_of
from fareg.calibration import (
    Batch,
    Labelled,
    Mondrian,
    RegionQuantiles,
    RegionSearch,
    learn_region_cells,
)
from fareg.classifiers._classifier import ConformalClassifier
from fareg.classifiers._teachers import Training, divide_rows


@dataclass(eq=False, repr=False)
class PLCPClassifier(ConformalClassifier):
    """Learned regions of the sensitive features, with one threshold each.

    ``P(Y in C(X) | X in region) >= 1 - alpha`` for every region with ``learn_from="split"``, where
    regions are learned on one half of the calibration rows (50,000 at most) and calibrated on the
    others, without dividing a cluster. As published, with ``learn_from="reuse"`` and
    ``target="score"``, there is no guarantee in finite samples.

    Soft regions ``h_i(x)`` and quantiles ``q_i`` minimise the pinball loss
    ``mean_j sum_i h_i(x_j) pinball(q_i, V_j)`` at level ``1 - alpha`` in turns (Kiyani, Pappas &
    Hassani 2024): rows whose scores have alike upper quantiles end up together.

    Parameters
    ----------
    estimator, confidence_level, conformity_score, calibration_size, allow_empty
        As in :class:`SplitConformalClassifier`.
    sensitive_features : list of names or positions, or function of X, default=None
        What the regions may depend on; None for all columns. Text is one-hot encoded, numbers are
        standardised; a level never seen counts as none of the known ones.
    label_conditional : bool, default=False
        Calibrate every label on its own within each region.
    random_state : int, Generator or None, default=None
        Seeds what it seeds in :class:`SplitConformalClassifier`, the choice of the rows that learn,
        and the restarts.
    n_regions : int, default=4
        An upper bound: regions that hold too few learning rows to be calibrated are left out.
    regions : {"network", "linear"}, default="network"
        Softmax of a network with one hidden layer of 16 units, or of a linear map.
    learn_from : {"split", "reuse"}, default="split"
        With "split", a row belongs to its most probable region, which is calibrated on rows that
        the regions were not learned on. "reuse" is the published form, in which all rows learn
        regions and quantiles; a row's region is drawn from h(x), by its values and
        ``random_state``.
    target : {"rank", "score"}, default="rank"
        What the pinball loss is taken of. A score may be replaced by any rising function of it
        without changing a set, and its rank among the learning rows, spread evenly over [0, 1],
        tells regions apart far better where scores crowd near their maximum. "score" is as
        published.
    max_iter : int, default=30
        Largest number of rounds that update regions and quantiles.
    n_restarts : int, default=8
        Number of random starts, of which the one with the lowest loss is kept.

    Attributes
    ----------
    regions_ : Regions
        The learned model of h.
    quantiles_ : ndarray of shape (n_regions,)
        Quantiles of the learning rows, weighted by membership.
    kept_ : ndarray of int
        The regions in use.
    loss_ : float
        The pinball loss of the target that was reached.
    n_iter_ : int
        Rounds that the kept restart took.

    References
    ----------
    Kiyani, Pappas & Hassani (2024), "Conformal prediction with learned features".

    Examples
    --------
    >>> from fareg import PLCPClassifier
    >>> from fareg.datasets import make_synthetic
    >>> data = make_synthetic(3000, random_state=0)
    >>> clf = PLCPClassifier(sensitive_features=list(data.sensitive), random_state=0)
    >>> sets = clf.fit(data.X[:2500], data.y[:2500]).predict_set(data.X[2500:])
    >>> sets.shape
    (500, 6)
    >>> bool(clf.predict_region(data.X[2500:]).max() < 4)
    True
    """

    n_regions: Count = 4
    regions: Annotated[str, one_of("network", "linear")] = "network"
    learn_from: Annotated[str, one_of("split", "reuse")] = "split"
    target: Annotated[str, one_of("rank", "score")] = "rank"
    max_iter: Count = 30
    n_restarts: Count = 8

    def predict_region(self, X: Any, *, sensitive_features: Any = None) -> IntArray:
        """Return the region whose threshold each row gets, shape (n_samples,)."""
        batches = self._batches(X, None, sensitive_features)
        cells = [self.calibration_.groups.cells(batch) for batch in batches]
        return self.kept_[np.concatenate(cells)]

    @property
    def regions_(self) -> Any:
        """The learned model of h."""
        return self.calibration_.groups.regions

    @property
    def kept_(self) -> IntArray:
        """The regions in use."""
        kept: IntArray = self.calibration_.groups.kept
        return kept

    def _promised_to(self) -> str | None:
        return "every learned region" if self.learn_from == "split" else None

    def _calibrate(self, rows: Labelled, training: Training | None) -> Any:
        # Regions draw other numbers than the scores and the split in fit.
        rng = np.random.default_rng([self.key_, 2])
        reuse = self.learn_from == "reuse"
        teachers, rest = rows, rows
        if not reuse:
            aim = "learn regions from"
            teachers, rest = divide_rows(rows, training, "split", self.key_, aim)
            if not len(teachers):
                teachers = rows.take(np.arange(1))  # one row stands for the single region
        search = RegionSearch(self.n_regions, self.regions, self.max_iter, self.n_restarts)
        cells, self.quantiles_, self.loss_, self.n_iter_ = learn_region_cells(
            teachers, self.alpha_, search, target=self.target, drawn=reuse, rng=rng
        )
        kind: Any = RegionQuantiles if reuse else Mondrian
        return kind.fit(cells, rest, self.alpha_, label_conditional=self.label_conditional)

    def _describe_rows(self, batch: Batch) -> dict[str, Any]:
        cells = self.calibration_.groups.cells(batch)
        return {"group": [f"region {region}" for region in self.kept_[cells]]}
