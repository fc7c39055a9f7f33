"""Other authors' methods for ``fareg benchmark``: ``methods = ["../rivals.py:ConformalTree"]``.

Each is written from its authors' formulas and gets the same split, scores and sensitive features as
fareg's methods. Docstrings say what is theirs and what is ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.linear_model import QuantileRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from fareg._encoding import one_hot_encoder
from fareg._levels import LevelCoding
from fareg.calibration import Batch, Calibration, Labelled, Mondrian, Sample
from fareg.classifiers import ConformalClassifier, Training


@dataclass(frozen=True, eq=False)
class Thresholds(Calibration):
    """Thresholds that a function gives."""

    sample: Sample
    alpha: float
    of: Callable[[Batch], np.ndarray]  # shape (n_samples, n_labels) or (n_samples, 1)
    has_pvalues = False

    def thresholds(self, batch: Batch) -> np.ndarray:
        return self.of(batch)


def finite_scores(rows: Labelled) -> np.ndarray:
    """Return the scores; that of a label that the model does not know is the largest."""
    known = np.isfinite(rows.score)
    return np.where(known, rows.score, rows.score[known].max(initial=0.0))


def learned_from(rows: Labelled, training: Training | None) -> Any:
    """Return the people that decide the coding of features: those that do not calibrate."""
    return rows.people if training is None else training.people


@dataclass(frozen=True, eq=False)
class Leaves:
    """The leaves of a tree: split number j moves rows of a leaf beyond a cut into leaf j."""

    encoder: Any
    splits: list[tuple[int, int, float]]  # leaf, feature, cut

    @property
    def n_cells(self) -> int:
        return len(self.splits) + 1

    def cells(self, rows: Batch | Labelled) -> np.ndarray:
        x, found = self.encoder.transform(rows.people), np.zeros(len(rows), dtype=np.int64)
        for number, (leaf, feature, cut) in enumerate(self.splits, 1):
            found[(found == leaf) & (x[:, feature] > cut)] = number
        return found

    def describe(self, cell: int) -> str:
        return f"leaf {cell}"


def robust_splits(
    x: np.ndarray, score: np.ndarray, *, threshold: float, smallest: int, leaves: int, depth: int
) -> list[tuple[int, int, float]]:
    """Grow a tree on the unit cube by the largest falls in the range of the scores.

    >>> x = np.repeat([[0.0], [1.0]], 20, axis=0)
    >>> score = np.r_[np.linspace(0, 0.1, 20), np.linspace(0, 1, 20)]
    >>> robust_splits(x, score, threshold=0.05, smallest=20, leaves=20, depth=8)
    [(0, 0, 0.5)]
    """
    n_features = x.shape[1]
    boxes = [(np.ones(len(x), dtype=bool), np.zeros(n_features), np.ones(n_features), 0)]
    splits: list[tuple[int, int, float]] = []
    best: list[tuple[float, int]] = []  # of each leaf, the largest fall and its feature

    def largest_fall(rows: np.ndarray, low: np.ndarray, high: np.ndarray, deep: int) -> Any:
        found = (0.0, -1)
        beyond = x[rows] > (low + high) / 2
        n_right, scores = beyond.sum(axis=0), score[rows]
        fits = (n_right >= smallest) & (len(scores) - n_right >= smallest) & (deep < depth)
        for feature in np.flatnonzero(fits):
            parts = scores[beyond[:, feature]], scores[~beyond[:, feature]]
            after = sum(np.ptp(part) for part in parts) / 2
            if np.ptp(scores) > (1 + threshold) * after:
                found = max(found, (np.ptp(scores) - after, -int(feature) - 1))
        return found[0], -found[1] - 1

    best.append(largest_fall(*boxes[0]))
    while len(boxes) < leaves and max(best)[0] > 0:
        leaf = int(np.argmax([fall for fall, _ in best]))
        feature, (rows, low, high, deep) = best[leaf][1], boxes[leaf]
        cut = (low[feature] + high[feature]) / 2
        beyond, at = x[:, feature] > cut, np.arange(n_features) == feature
        boxes[leaf] = (rows & ~beyond, low, np.where(at, cut, high), deep + 1)
        boxes.append((rows & beyond, np.where(at, cut, low), high, deep + 1))
        best[leaf] = largest_fall(*boxes[leaf])
        best.append(largest_fall(*boxes[-1]))
        splits.append((leaf, feature, float(cut)))
    return splits


class ConformalTree(ConformalClassifier):
    """Conformal Tree (Kim, O'Hagan & Rockova 2024, arXiv:2408.08990): groups are leaves of a tree.

    Theirs: the rows that calibrate also grow the tree. A leaf is halved at the middle of its box
    along one feature, best first, where the range of the scores falls most, from that of the leaf
    to the mean of its halves, and by more than 5% of the latter; both halves keep 20 rows, and
    there are at most 20 leaves, 8 deep. Cuts at fixed places and ranges instead of variances make
    it rare that one more row changes the tree; so the split conformal sets of each leaf nearly keep
    their promise there.

    Ours: features are the sensitive ones, numbers scaled to [0, 1] by the training rows and
    categories as indicators; ranks are those of split conformal prediction.
    """

    title = "Conformal Tree"

    def _calibrate(self, rows: Labelled, training: Training | None) -> Mondrian:
        encoder = make_pipeline(one_hot_encoder(), MinMaxScaler(clip=True))
        encoder.fit(learned_from(rows, training))
        x = encoder.transform(rows.people)
        options = {"threshold": 0.05, "smallest": 20, "leaves": 20, "depth": 8}
        leaves = Leaves(encoder, robust_splits(x, finite_scores(rows), **options))
        return Mondrian.fit(leaves, rows, self.alpha_, label_conditional=False)


class BatchGCP(ConformalClassifier):
    """BatchGCP (Jung, Noarov, Ramalingam & Roth 2023, arXiv:2209.15145): one quantile regression.

    Theirs: the threshold is a constant plus a weight for each group that a row is in, and the
    weights minimise the pinball loss of the calibration scores. Groups may overlap; each is covered
    as promised on the calibration rows, and on other rows up to an error that shrinks with its
    size. There is no promise for finite samples.

    Ours: groups are the categories of each sensitive feature, numbers cut at quartiles, as in
    ``PartialConformalClassifier``; no regularisation; every row counts once.
    """

    title = "BatchGCP"

    def _calibrate(self, rows: Labelled, training: Training | None) -> Thresholds:
        coding = LevelCoding.learn(rows.people, learned_from(rows, training))

        def groups(people: Any) -> np.ndarray:
            codes = coding.codes(people).T
            return np.column_stack(
                [
                    x[:, None] == np.arange(k)
                    for x, k in zip(codes, coding.n_categories, strict=True)
                ]
            )

        model = QuantileRegressor(quantile=1 - self.alpha_, alpha=0.0)
        model.fit(groups(rows.people).astype(float), finite_scores(rows))
        sample = Sample.from_rows(rows, label_conditional=False)
        # a score equal to its threshold is inside, whatever the solver's last digits
        return Thresholds(
            sample,
            self.alpha_,
            lambda batch: model.predict(groups(batch.people).astype(float))[:, None] + 1e-9,
        )


class ClusteredLabels(ConformalClassifier):
    """Clustered conformal prediction (Ding, Angelopoulos, Bates, Jordan & Tibshirani 2023).

    Theirs: some calibration rows describe each label by quantiles of its scores; k-means gathers
    labels, weighted by the root of their counts, and the other rows calibrate each cluster of
    labels. Labels too rare for a quantile at ``1 - alpha`` get the threshold of all these rows. The
    share of the rows and the number of clusters are the authors' defaults, which leave one
    threshold for everyone where labels are few.

    Ours: nothing but the code. ``P(Y in C(X) | Y in cluster) >= 1 - alpha``.
    """

    title = "Clustered labels"

    def _calibrate(self, rows: Labelled, training: Training | None) -> Thresholds:
        seed = self.key_ % 2**32
        n_enough = int(np.ceil(1 / self.alpha_ - 1 - 1e-9))  # for a quantile at 1 - alpha
        counts = np.bincount(rows.y[rows.y >= 0], minlength=rows.n_classes)
        n_rows = max(int(counts.min()), n_enough)
        n_labels = int((counts >= n_rows).sum())
        n_embedded = int(n_rows * n_labels / (75 + n_labels))  # rows per label
        teaches = np.random.default_rng(seed).random(len(rows)) < n_embedded / n_rows
        cluster = label_clusters(
            rows.score[teaches], rows.y[teaches], rows.n_classes, n_enough, n_embedded // 2, seed
        )
        remaining = rows.take(np.flatnonzero(~teaches))
        sample = Sample.from_rows(remaining, label_conditional=False)
        of_row = np.where(remaining.y >= 0, cluster[remaining.y], -1)
        limits = sample.sorted_by(of_row, max(n_embedded // 2, 1)).quantiles(self.alpha_)[:-1]
        thresholds = np.where(cluster >= 0, limits[cluster], sample.split_thresholds(self.alpha_))
        return Thresholds(sample, self.alpha_, lambda batch: np.tile(thresholds, (len(batch), 1)))


def label_clusters(
    score: np.ndarray, y: np.ndarray, n_labels: int, n_enough: int, n_clusters: int, seed: int
) -> np.ndarray:
    """Return the cluster of each label, -1 for labels that are too rare, or for all of too few."""
    counts = np.bincount(y[y >= 0], minlength=n_labels)
    common, cluster = np.flatnonzero(counts >= n_enough), np.full(n_labels, -1)
    if n_clusters > 1 and len(common) > n_clusters:
        shares = [0.5, 0.6, 0.7, 0.8, 0.9]
        quantiles = [np.quantile(score[y == k], shares, method="inverted_cdf") for k in common]
        means = KMeans(n_clusters, n_init=10, random_state=seed)
        cluster[common] = means.fit(quantiles, sample_weight=np.sqrt(counts[common])).labels_
    return cluster
