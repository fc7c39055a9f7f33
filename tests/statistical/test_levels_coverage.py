"""Coverage of every upper set of levels, over many draws of the calibration rows.

Scores of a level are exponential, so the coverage of a threshold is known and no test rows are
drawn: all noise is that of calibration. The bound of four standard errors over draws fails by
chance less than once in ten thousand runs, and seeds are fixed.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest

from fareg.calibration import (
    Batch,
    LevelThresholds,
    Rectified,
    level_pvalues,
    level_thresholds,
)
from fareg.groups import DisadvantageLevels, learn_disadvantage
from fareg.scores import aps

ALPHA, N_LEVELS, N_DRAWS = 0.1, 5, 600
SHARES = np.array([0.3, 0.25, 0.2, 0.15, 0.1])  # of the rows in each level
SCALES = {
    "right": np.array([1.0, 1.5, 2.0, 3.0, 4.0]),
    "wrong": np.array([4.0, 3.0, 2.0, 1.5, 1.0]),
    "random": np.array([2.0, 1.0, 4.0, 1.5, 3.0]),
    "none": np.ones(N_LEVELS),
}


def level_coverages(scales, n, n_draws=N_DRAWS, shares=SHARES):
    """Return how much each level is covered in each draw, of shape (n_draws, n_levels)."""
    rng = np.random.default_rng(11)
    coverages = np.empty((n_draws, len(shares)))
    for coverage in coverages:
        levels = rng.choice(len(shares), size=n, p=shares)
        scores = rng.exponential(scales[levels])
        theta = level_thresholds(scores, levels, len(shares), alpha=ALPHA)
        coverage[:] = 1 - np.exp(-theta / scales)
    return coverages


def mean_and_error(values):
    return values.mean(), values.std() / np.sqrt(len(values))


def broken_promises(coverages, shares=SHARES):
    """Return the levels m for which coverage given level >= m is credibly below 1 - alpha."""
    broken = []
    for m in range(len(shares)):
        above = coverages[:, m:] @ shares[m:] / shares[m:].sum()
        mean, error = mean_and_error(above)
        if mean < 1 - ALPHA - 4 * error:
            broken.append(m)
    return broken


@pytest.mark.parametrize("n", [25, 150])
@pytest.mark.parametrize("order", SCALES)
def test_every_upper_set_is_covered(order, n):
    assert broken_promises(level_coverages(SCALES[order], n)) == []


@pytest.mark.parametrize("order", SCALES)
def test_the_law_sees_a_threshold_that_is_too_low(order, monkeypatch):
    from fareg.pvalues import conformal_rank

    monkeypatch.setattr(
        "fareg.calibration._levels.conformal_rank",
        lambda n, alpha, *more: conformal_rank(n, alpha + 0.03, *more),
    )
    assert broken_promises(level_coverages(SCALES[order], 150))


def test_the_law_sees_ranks_that_forget_the_test_row(monkeypatch):
    """The plain quantile of the calibration rows alone is one rank too low."""
    from fareg.pvalues import conformal_rank

    monkeypatch.setattr(
        "fareg.calibration._levels.conformal_rank",
        lambda n, alpha, *more: np.maximum(conformal_rank(n, alpha, *more) - 1, 1),
    )
    assert broken_promises(level_coverages(SCALES["right"], 60))


def test_the_law_sees_a_level_that_looks_upwards_only(monkeypatch):
    """Without the maximum over lower levels, thresholds fall and the promise with them."""

    def upwards_only(quantiles):
        return np.array([quantiles[j, j:].min() for j in range(len(quantiles))])

    monkeypatch.setattr("fareg.calibration._levels._isotonic", upwards_only)
    assert broken_promises(level_coverages(SCALES["wrong"], 300))


def test_levels_that_calibration_rows_have_chosen_lose_the_promise():
    """Cells of pure noise, ranked by the scores of the same rows that calibrate."""
    rng, n, n_cells, shares = np.random.default_rng(14), 200, 40, np.full(2, 0.5)
    same, other = np.empty((N_DRAWS, 2)), np.empty((N_DRAWS, 2))
    for draw in range(N_DRAWS):
        cells, scores = rng.integers(0, n_cells, size=(2, n)), rng.exponential(size=(2, n))
        sums = np.bincount(cells[0], scores[0], minlength=n_cells)
        disadvantage = sums / np.maximum(np.bincount(cells[0], minlength=n_cells), 1)
        upper = (disadvantage.argsort().argsort() >= n_cells // 2).astype(int)
        for coverage, rows in ((same, 0), (other, 1)):
            theta = level_thresholds(scores[rows], upper[cells[rows]], 2, alpha=ALPHA)
            coverage[draw] = 1 - np.exp(-theta)
    assert broken_promises(same, shares) == [0]
    assert broken_promises(other, shares) == []


def test_a_single_lower_level_has_no_promise():
    """Without any signal, small levels are told apart by chance: the lowest pays for the top."""
    shares = np.full(5, 0.2)
    coverages = level_coverages(np.ones(5), 60, shares=shares)
    lowest, error = mean_and_error(coverages[:, 0])
    assert lowest < 1 - ALPHA - 4 * error
    assert coverages[:, -1].mean() > 1 - ALPHA
    assert broken_promises(coverages, shares) == []


@pytest.mark.parametrize("order", ["right", "wrong"])
def test_pvalues_of_every_upper_set_are_valid(order):
    """``P(p <= t | level >= m) <= t`` for all t at once is asked at a few of them."""
    rng, n, n_test = np.random.default_rng(12), 50, 100
    scales = SCALES[order]
    p, asked = np.empty((400, n_test)), np.empty((400, n_test), dtype=int)
    for draw in range(400):
        levels = rng.choice(N_LEVELS, size=n + n_test, p=SHARES)
        scores = rng.exponential(scales[levels])
        asked[draw] = levels[n:]
        p[draw] = level_pvalues(scores[:n], levels[:n], scores[n:, None], asked[draw], N_LEVELS)[
            :, 0
        ]
    for m in range(N_LEVELS):
        for t in (0.05, 0.1, 1 / 3, 0.5, 0.8):
            # summed, not averaged: each draw counts with its number of rows
            mean, error = mean_and_error(((asked >= m) * ((p <= t) - t)).sum(axis=1))
            assert mean <= 4 * error


@dataclass(frozen=True)
class ColumnLevels:
    """Reads levels, and a quantile of the scores, from a column."""

    n_levels = 3

    def levels(self, people):
        return people["level"].to_numpy().astype(np.int64)

    def predict(self, people):
        return 0.2 * people["level"].to_numpy()


def draw_rows(rng, n):
    """Draw rows of two labels: tied scores that rise with the level, the more so for label 1."""
    levels, y = rng.integers(0, 3, size=n), (rng.random(n) < 0.4).astype(np.int64)
    own = np.round(rng.beta(1 + levels * (1 + y), 3), 1)
    first = np.where(y == 0, own, 1 - own)
    scores = np.column_stack([first, 1 - first])
    return Batch(pd.DataFrame({"level": levels * 1.0}), scores, scores, rng.random(n)), y


def covered_rows(make, n_draws, n=60, n_test=200):
    """Yield levels, labels and coverage of the test rows of each draw."""
    rng = np.random.default_rng(13)
    for _ in range(n_draws):
        batch, y = draw_rows(rng, n)
        calibration = make(batch.labelled(y))
        batch, y = draw_rows(rng, n_test)
        sets = batch.scores <= calibration.thresholds(batch)
        yield ColumnLevels().levels(batch.people), y, sets[np.arange(n_test), y]


def test_label_conditional_levels_cover_every_label_in_every_upper_set():
    def make(rows):
        return LevelThresholds.fit(ColumnLevels(), rows, ALPHA, label_conditional=True)

    draws = list(covered_rows(make, 150))
    for label in (0, 1):
        for m in range(3):
            excess = np.array(
                [
                    (hit - (1 - ALPHA))[(levels >= m) & (labels == label)].sum()
                    for levels, labels, hit in draws
                ]
            )
            mean, error = mean_and_error(excess)
            assert mean >= -4 * error


def test_rectified_scores_cover_everyone():
    """Ties at the quantile count: a threshold that rounds them away would be seen."""

    def make(rows):
        return Rectified.fit(ColumnLevels(), rows, ALPHA, label_conditional=False)

    mean, error = mean_and_error(np.array([hit.mean() for _, _, hit in covered_rows(make, 150)]))
    assert mean >= 1 - ALPHA - 4 * error


N_LABELS = 3


def draw_biased(rng, n):
    """Rows of two bits; where they agree the model's probabilities are nearly always wrong."""
    bits = rng.integers(0, 2, size=(n, 2))
    p = rng.dirichlet(np.full(N_LABELS, 0.7), size=n)
    y = (rng.random((n, 1)) > np.cumsum(p, axis=1)[:, :-1]).sum(axis=1)
    wrong = (bits[:, 0] == bits[:, 1]) & (rng.random(n) < 0.9)
    u, people = rng.random(n), pd.DataFrame(bits * 1.0, columns=["a", "b"])
    y = np.where(wrong, rng.integers(0, N_LABELS, n), y)
    return Batch(people, p, aps(p, u), u).labelled(y)


@pytest.mark.parametrize("seed", [0, 1])
def test_levels_learned_on_other_rows_cover_every_upper_set(seed):
    """Given the rows that taught the levels, over draws of the rows that calibrate."""
    rng, n, n_test = np.random.default_rng(seed), 100, 200
    teachers = draw_biased(rng, 300)
    missed = (teachers.score > np.quantile(teachers.score, 1 - ALPHA)).astype(np.float64)
    learned = learn_disadvantage(teachers.people, missed, seed=seed)
    levels = DisadvantageLevels.cut(learned, teachers.people, n_levels=20, n_calibration=n)
    assert levels.n_levels > 1
    excess = {"levels": [], "split": []}
    for _ in range(120):
        rows, test = draw_biased(rng, n), draw_biased(rng, n_test)
        found = levels.levels(test.people)
        fitted = LevelThresholds.fit(levels, rows, ALPHA, label_conditional=False)
        thresholds = {
            "levels": fitted.theta[0][found],
            "split": fitted.sample.split_thresholds(ALPHA),
        }
        for name, own in thresholds.items():
            hit = test.score <= own
            short = [(hit - (1 - ALPHA))[found >= m].sum() for m in range(levels.n_levels)]
            excess[name].append(short)
    for m in range(levels.n_levels):
        mean, error = mean_and_error(np.array(excess["levels"])[:, m])
        assert mean >= -4 * error
    mean, error = mean_and_error(np.array(excess["split"])[:, -1])
    assert mean < -4 * error  # split conformal sets fail the worst off here
