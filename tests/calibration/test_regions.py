"""Quantiles of soft regions against the definition of a weighted quantile."""

from dataclasses import dataclass

import numpy as np
import pytest

from fareg.calibration import RegionCalibration


@dataclass(frozen=True)
class ThreeRegions:
    """Memberships in eighths that depend on the level; the region of a row is its largest."""

    def memberships(self, rows):
        return np.array([[1, 1, 6], [5, 2, 1], [2, 4, 2], [0, 7, 1]])[self.level(rows)] / 8

    def cells(self, rows):
        return self.memberships(rows).argmax(axis=1)[None]

    def level(self, rows):
        return np.asarray(rows.X)[:, -1].astype(np.int64)


def weighted_quantile(scores, weights, alpha):
    """Return the smallest score at or below which a share ``1 - alpha`` of the weight lies."""
    for value in sorted(scores):
        if weights[scores <= value].sum() >= (1 - alpha) * weights.sum():
            return value
    return np.inf


@pytest.mark.parametrize("label_conditional", [False, True])
@pytest.mark.parametrize("alpha", [0.125, 0.25, 0.5])  # exact in binary, as the weights are
def test_regions_equal_a_loop_over_regions_and_labels(make_rows, label_conditional, alpha):
    rows, new, views = make_rows(0, 120, 4), make_rows(1, 40, 4), ThreeRegions()
    found = RegionCalibration.of(views, rows, alpha, label_conditional=label_conditional)
    h, own = views.memberships(rows), views.cells(new)[0]
    problems = [rows.codes == k for k in range(3)] if label_conditional else [rows.codes < 3]
    expected = [
        [weighted_quantile(rows.own_scores[of], h[of, region], alpha) for of in problems]
        for region in own
    ]
    np.testing.assert_array_equal(found.thresholds(new), expected)


def test_a_label_without_rows_is_kept_everywhere(make_rows):
    rows = make_rows(2, 60, 4, unknown=0.0)
    part = rows.take(np.flatnonzero(rows.codes != 1))
    found = RegionCalibration.of(ThreeRegions(), part, 0.25, label_conditional=True)
    assert np.isinf(found.thresholds(rows)[:, 1]).all()
    assert np.isfinite(found.thresholds(rows)[:, [0, 2]]).all()
