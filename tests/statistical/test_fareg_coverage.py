"""Coverage of FaReG over many draws: its levels and named groups, and the paper's random groups.

Each repetition draws new rows and counts covered test rows. The bound of four standard errors over
repetitions fails by chance less than once in ten thousand runs, and seeds are fixed.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest

from fareg import FaReGClassifier
from fareg.calibration import Batch
from fareg.paper import DrawnGroups
from fareg.paper._draws import drawn_members
from fareg.scores import aps

pytestmark = pytest.mark.filterwarnings("ignore::fareg.FaregWarning")

LEVEL, N_LABELS, N_TEST, N_DRAWS = 0.8, 3, 200, 3


def draw(rng, n, gap):
    """Rows of two bits; where they agree the model's probabilities are wrong with that chance."""
    bits = rng.integers(0, 2, size=(n, 2))
    p = rng.dirichlet(np.full(N_LABELS, 0.7), size=n)
    y = (rng.random((n, 1)) > np.cumsum(p, axis=1)[:, :-1]).sum(axis=1)
    wrong = (bits[:, 0] == bits[:, 1]) & (rng.random(n) < gap)
    return np.hstack([p, bits]), np.where(wrong, rng.integers(0, N_LABELS, n), y)


def broken(excess):
    """Return for which keys the mean over repetitions of (covered - level) is credibly negative.

    Sums are compared, not averages: each repetition counts with its number of rows.
    """
    return {
        key
        for key, sums in excess.items()
        if len(sums) >= 20 and np.mean(sums) < -4 * np.std(sums) / np.sqrt(len(sums))
    }


# --- random groups, drawn from memberships that other rows taught ---


@dataclass(frozen=True)
class WhereBitsAgree:
    """A membership that is higher where the two bits agree."""

    def predict(self, people):
        return np.where(people["a"] == people["b"], 0.8, 0.2)


def draw_batch(rng, n, gap):
    X, y = draw(rng, n, gap)
    p, u = X[:, :N_LABELS], rng.random(n)
    return Batch(pd.DataFrame(X[:, N_LABELS:], columns=["a", "b"]), p, aps(p, u), u), y


def excess_of_draws(n, gap, n_repeats=60):
    """Return the excess for everyone (0), and for the members of each draw (from 1)."""
    rng = np.random.default_rng(7)
    excess: dict[int, list[float]] = {}
    for _ in range(n_repeats):
        batch, y = draw_batch(rng, n, gap)
        found = DrawnGroups.fit(
            WhereBitsAgree(),
            batch.labelled(y),
            1 - LEVEL,
            n_draws=N_DRAWS,
            label_conditional=False,
        )
        batch, y = draw_batch(rng, N_TEST, gap)
        covered = (batch.scores <= found.thresholds(batch))[np.arange(N_TEST), y]
        groups = drawn_members(WhereBitsAgree(), batch, N_DRAWS)
        for number, inside in enumerate([np.ones(N_TEST, dtype=bool), *groups]):
            excess.setdefault(number, []).append((covered[inside] - LEVEL).sum())
    return excess


@pytest.mark.parametrize(("n", "gap"), [(60, 0.9), (200, 0.9), (200, 0.0)])
def test_random_groups_of_other_rows_cover_their_members(n, gap):
    assert broken(excess_of_draws(n, gap)) == set()


def test_the_law_sees_a_threshold_that_is_too_low(monkeypatch):
    from fareg.pvalues import CalibrationScores

    honest = CalibrationScores.quantiles
    monkeypatch.setattr(CalibrationScores, "quantiles", lambda s, alpha: honest(s, alpha + 0.05))
    assert broken(excess_of_draws(200, 0.9))


# --- levels and named groups, through the whole classifier ---


@pytest.mark.parametrize("learn_from", ["split", "train"])
@pytest.mark.parametrize("gap", [0.9, 0.0])
def test_levels_and_named_groups_keep_their_promise(reader, learn_from, gap):
    """Rows that teach, split off or out of fold, do not calibrate."""
    rng = np.random.default_rng(11)
    n, excess = 400, {}
    for repeat in range(40):
        X, y = draw(rng, n + N_TEST, gap)
        clf = FaReGClassifier(
            reader().estimator,  # not frozen: fit trains it
            confidence_level=LEVEL,
            sensitive_features=[3, 4],
            learn_from=learn_from,
            random_state=repeat,
        ).fit(X[:n], y[:n])
        covered = clf.predict_set(X[n:])[np.arange(N_TEST), y[n:]]
        levels = clf.predict_level(X[n:])
        who = {f"level >= {m}": levels >= m for m in np.unique(levels)}
        people = pd.DataFrame(X[n:, 3:], columns=["x3", "x4"])
        who |= {rule.text: rule.inside(people) for rule in clf.protected_}
        for name, inside in who.items():
            excess.setdefault(name, []).append((covered[inside] - LEVEL).sum())
    assert broken(excess) == set()
    assert (
        gap == 0.0 or sum(len(sums) >= 20 for sums in excess.values()) > 1
    )  # there was more to find
