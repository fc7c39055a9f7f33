"""Rectified scores against their definition, where residuals slip in floating point too."""

from dataclasses import dataclass

import numpy as np
import pytest

from fareg.calibration import CellCalibration, Everyone, ShiftedCalibration
from fareg.pvalues import conformal_pvalues, conformal_quantile


@dataclass(frozen=True)
class Linear:
    """tau rises with the level, in steps that have no exact binary form."""

    step: float

    def shift(self, rows):
        return self.step * np.asarray(rows.X)[:, -1]


@pytest.mark.parametrize("label_conditional", [False, True])
@pytest.mark.parametrize("step", [0.1, -0.3, 1e6 / 3])
@pytest.mark.parametrize("alpha", [0.1, 0.45])
def test_sets_are_those_of_the_residuals(make_rows, label_conditional, step, alpha):
    """Residuals repeat, so many lie exactly at the quantile: none of them may be lost."""
    shift = Linear(step)
    for seed in range(20):
        rows, new = make_rows(seed, 120, 5), make_rows(100 + seed, 60, 5)
        found = ShiftedCalibration.of(shift, rows, alpha, label_conditional=label_conditional)
        found.check(new, 3 if label_conditional else None, alpha)
        known, asked = rows.own_scores - shift.shift(rows), new.scores - shift.shift(new)[:, None]
        sets, p = np.empty(asked.shape, dtype=bool), np.empty(asked.shape)
        for label in range(3):
            own = known[rows.codes == label] if label_conditional else known
            eta = conformal_quantile(own, confidence_level=1 - alpha)
            sets[:, label] = asked[:, label] <= eta
            p[:, label] = conformal_pvalues(own, asked[:, label])
        thresholds = found.thresholds(new)
        np.testing.assert_array_equal(new.scores <= thresholds, sets)
        np.testing.assert_array_equal(found.pvalues(new), p)
        np.testing.assert_array_equal(p > alpha, sets)
        finite = np.isfinite(thresholds)
        by_hand = shift.shift(new)[:, None] + found._sorted.quantiles(alpha)[:-1]
        np.testing.assert_allclose(
            thresholds[finite], by_hand[finite], atol=1e-9 * abs(step) + 1e-12
        )


def test_without_a_shift_it_is_split(make_rows):
    rows, new = make_rows(0, 120, 5), make_rows(1, 60, 5)
    plain = CellCalibration.of(Everyone(), rows, 0.1, label_conditional=False)
    shifted = ShiftedCalibration.of(Linear(0.0), rows, 0.1, label_conditional=False)
    np.testing.assert_array_equal(shifted.thresholds(new), plain.thresholds(new))
    np.testing.assert_array_equal(shifted.pvalues(new), plain.pvalues(new))


def test_full_sets_name_the_label(make_rows):
    rows = make_rows(2, 15, 2, unknown=0.0)
    found = ShiftedCalibration.of(Linear(0.1), rows, 0.1, label_conditional=True)
    few = [label for label in range(3) if (rows.codes == label).sum() < 9]
    assert few
    assert [(full.label, full.has_points) for full in found.full_sets()] == [
        (label, False) for label in few
    ]
