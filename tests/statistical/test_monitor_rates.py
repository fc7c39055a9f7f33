"""Error and power of the monitor, with a look at every row.

Calibration rows are drawn again in every run, so the luck of calibration is part of the error. All
bounds are four standard errors wide, and seeds are fixed.
"""

import numpy as np
import pandas as pd
import pytest

from fareg import CoverageMonitor, PartialConformalClassifier
from fareg.monitoring._bets import Reference, Wager, interval_at_all_times

ALPHA = 0.1
pytestmark = pytest.mark.filterwarnings("ignore:all .* calibration rows have the label")


def proba_of(scores):
    """Return probabilities for which the score of the first label is as given."""
    return np.column_stack([1 - scores, scores])


def watch(rng, n_calibration, n_rows, share, scores_of=None, n_tests=None):
    """Return the row of the first alarm after a change, nan without any."""
    method = PartialConformalClassifier(sensitive_features=["group"], conformity_score="lac")
    groups = np.where(rng.random(n_calibration + n_rows) < share, "worst", "rest")
    X = pd.DataFrame({"group": groups, "half": rng.choice(["a", "b"], len(groups))})
    scores, labels = rng.random(len(groups)), np.full(len(groups), "first")
    if scores_of is not None:
        scores[n_calibration:] = scores_of(scores[n_calibration:], groups[n_calibration:])
    known, new = slice(0, n_calibration), slice(n_calibration, None)
    clf = method.conformalize(
        X[known], labels[known], proba=proba_of(scores[known]), classes=["first", "second"]
    )
    monitor = CoverageMonitor(clf, groups=["half = a", "group = worst and half = b"])
    if n_tests is not None:  # as if there were more groups
        monitor = CoverageMonitor(clf, error=0.05 * len(monitor.summary()) / n_tests)
    monitor.update(X[new], labels[new], proba=proba_of(scores[new]))
    return monitor.alarms[0].row if monitor.alarms else np.nan


def test_false_alarms_over_all_streams_and_all_time():
    rng, n_runs = np.random.default_rng(1), 150
    alarms = [watch(rng, 300, 10_000, 0.15) for _ in range(n_runs)]
    assert np.isfinite(alarms).mean() <= 0.05 + 4 * np.sqrt(0.05 * 0.95 / n_runs)


def test_wealth_reaches_c_with_probability_at_most_one_in_c():
    rng, n_runs, highest, last = np.random.default_rng(2), 600, [], []
    for _ in range(n_runs):
        n = int(rng.integers(20, 400))
        known = Reference.of(rng.normal(size=n).round(1), rng.random(n), ALPHA)  # with ties
        bins = known.bins(rng.normal(size=10_000).round(1), rng.random(10_000))
        wealth, _ = Wager.start(known).play(known, bins, ALPHA)
        highest.append(wealth.max())
        last.append(wealth[300])
    for c in (2, 4, 10, 20):
        assert np.mean(np.array(highest) >= c) <= 1 / c + 4 * np.sqrt(1 / c / n_runs)
    assert abs(np.mean(last) - 1) < 4 * np.std(last) / np.sqrt(n_runs)  # not wasteful


def test_intervals_hold_the_mean_coverage_at_every_row_however_it_moves():
    rng, n_runs, n = np.random.default_rng(3), 300, np.arange(1, 10_001)
    looks = np.unique(np.geomspace(1, 10_000, 120).astype(int)) - 1
    outside = 0
    for run in range(n_runs):
        miss = 0.1 + 0.08 * np.sin(n / 10 ** (1 + run % 3)) + 0.2 * (n > 4000) * (run % 2)
        missed = np.cumsum(rng.random(len(n)) < miss)
        low, high = interval_at_all_times(n[looks], missed[looks], 0.05).T
        mean = (1 - np.cumsum(miss) / n)[looks]
        outside += bool(((mean < low) | (mean > high)).any())
    assert outside / n_runs <= 0.05 + 4 * np.sqrt(0.05 * 0.95 / n_runs)


@pytest.mark.parametrize(("misses", "within", "found"), [(0.3, 1271, 0.95), (0.2, 6850, 0.5)])
def test_a_loss_in_the_worst_off_is_found(misses, within, found):
    """1,000 calibration rows, 15% worst off, who are missed more often from row 2,000 on.

    Nothing else about their scores changes, which is the hardest case, and the error is divided
    among 25 groups.
    """
    rng, rows = np.random.default_rng(4), []

    def worse(scores, groups):
        changed = (np.arange(len(scores)) >= 2000) & (groups == "worst")
        missed = rng.random(len(scores)) < misses
        moved = np.where(missed, 0.9 + 0.1 * scores, 0.9 * scores)
        return np.where(changed, moved, scores)

    for _ in range(60):
        rows.append(watch(rng, 1000, 15_700, 0.15, worse, n_tests=25) - 2000)
    delays = np.array(rows)
    assert np.isfinite(delays).mean() >= found
    assert np.median(np.nan_to_num(delays, nan=np.inf)) <= within
