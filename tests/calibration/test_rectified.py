"""Rectified scores against their definition, where residuals slip in floating point too."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from fareg.calibration import Rectified, learn_quantile
from fareg.pvalues import conformal_pvalues, conformal_quantile
from tied_rows import make_batch, make_rows


@dataclass(frozen=True)
class Linear:
    """tau rises with the level, in steps that have no exact binary form."""

    step: float

    def predict(self, people):
        return self.step * people["level"].to_numpy()


@pytest.mark.parametrize("label_conditional", [False, True])
@pytest.mark.parametrize("step", [0.1, -0.3, 1e6 / 3])
@pytest.mark.parametrize("alpha", [0.1, 0.45])
def test_sets_are_those_of_the_residuals(label_conditional, step, alpha):
    """Residuals repeat, so many lie exactly at the quantile: none of them may be lost."""
    tau = Linear(step)
    for seed in range(20):
        rows, batch = make_rows(seed, 120, 5), make_batch(100 + seed, 60, 5)
        found = Rectified.fit(tau, rows, alpha, label_conditional=label_conditional)
        found.check(batch, 3 if label_conditional else None, alpha)
        known = rows.score - tau.predict(rows.people)
        residuals = batch.scores - tau.predict(batch.people)[:, None]
        sets, p = np.empty(residuals.shape, dtype=bool), np.empty(residuals.shape)
        for label in range(3):
            calibration = known[rows.y == label] if label_conditional else known
            eta = conformal_quantile(calibration, confidence_level=1 - alpha)
            sets[:, label] = residuals[:, label] <= eta
            p[:, label] = conformal_pvalues(calibration, residuals[:, label])
        thresholds = found.thresholds(batch)
        np.testing.assert_array_equal(batch.scores <= thresholds, sets)
        np.testing.assert_array_equal(found.pvalues(batch), p)
        np.testing.assert_array_equal(p > alpha, sets)
        finite = np.isfinite(thresholds)
        by_hand = tau.predict(batch.people)[:, None] + found.quantiles
        np.testing.assert_allclose(
            thresholds[finite], by_hand[finite], atol=1e-9 * abs(step) + 1e-12
        )


def test_full_sets_name_the_label():
    rows = make_rows(2, 15, 2, unknown=0.0)
    found = Rectified.fit(Linear(0.1), rows, 0.1, label_conditional=True)
    few = [label for label in range(3) if (rows.y == label).sum() < 9]
    assert few
    assert [label for _, label in found.full_sets()] == few


def test_nine_tenths_of_the_scores_of_every_level_are_below_the_learned_quantile():
    rows = make_rows(3, 3000, 3, unknown=0.0)
    level = rows.people["level"].to_numpy()
    rows = replace(rows, score=level + np.random.default_rng(0).random(3000))
    tau = learn_quantile(rows, 0.1, seed=0).predict(rows.people)
    for k in range(3):
        assert (rows.score <= tau)[level == k].mean() == pytest.approx(0.9, abs=0.03)
    # how far the scores above a quantile are does not change it
    cut = replace(rows, score=np.where(rows.score > 2.97, np.inf, rows.score))
    np.testing.assert_allclose(
        learn_quantile(cut, 0.1, seed=0).predict(rows.people), tau, atol=0.01
    )


def test_without_a_finite_score_the_quantile_is_zero():
    rows = make_rows(4, 20, 2)
    for taught in (rows.take(np.arange(0)), replace(rows, score=np.full(20, np.inf))):
        assert (learn_quantile(taught, 0.1, seed=0).predict(rows.people) == 0).all()
