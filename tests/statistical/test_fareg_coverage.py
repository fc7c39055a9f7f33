"""Coverage of FaReG with split calibration over many draws: on every cell, every draw, and overall.

Each repetition draws new rows, learns a group and counts covered test rows per cell. The bound of
four standard errors over repetitions fails by chance less than once in ten thousand runs, and seeds
are fixed. The same test rejects the published reuse of rows at small samples.
"""

import numpy as np
import pytest

from fareg import FaReGClassifier
from fareg.groups import GroupLearner

pytestmark = pytest.mark.filterwarnings("ignore::fareg.FaregWarning")

LEVEL, N_LABELS, N_TEST = 0.8, 3, 200


def draw(rng, n, gap):
    """Rows of two bits; where they agree the model's probabilities are wrong with that chance."""
    bits = rng.integers(0, 2, size=(n, 2))
    p = rng.dirichlet(np.full(N_LABELS, 0.7), size=n)
    y = (rng.random((n, 1)) > np.cumsum(p, axis=1)[:, :-1]).sum(axis=1)
    wrong = (bits[:, 0] == bits[:, 1]) & (rng.random(n) < gap)
    return np.hstack([p, bits]), np.where(wrong, rng.integers(0, N_LABELS, n), y)


def excess(reader, n, gap, n_repeats, **parameters):
    """Return per view and cell the mean over repetitions of (covered - level) and its error."""
    rng = np.random.default_rng(7)
    hits: dict[tuple[int, int], list[float]] = {}
    for repeat in range(n_repeats):
        X, y = draw(rng, n + N_TEST, gap)
        clf = FaReGClassifier(
            reader(),
            confidence_level=LEVEL,
            sensitive_features=[3, 4],
            learner=GroupLearner(significance=None, n_restarts=1, max_iter=5),
            n_draws=3,
            random_state=repeat,
            **parameters,
        ).conformalize(X[:n], y[:n])
        covered = clf.predict_set(X[n:])[np.arange(N_TEST), y[n:]]
        views = [
            np.zeros(N_TEST, dtype=int),
            *clf.calibration_.views.cells(clf._rows(X[n:], caller="test")),
        ]
        for view, cells in enumerate(views):
            for cell in np.unique(cells[cells >= 0]):
                inside = cells == cell
                # summed, not averaged: each repetition counts with its number of rows
                hits.setdefault((view, int(cell)), []).append((covered[inside] - LEVEL).sum())
    return {key: (np.mean(v), np.std(v) / np.sqrt(len(v))) for key, v in hits.items()}


@pytest.mark.parametrize("construction", ["partition", "union"])
@pytest.mark.parametrize(("n", "gap"), [(60, 0.9), (200, 0.9), (200, 0.0)])
def test_split_calibration_keeps_its_promise_on_every_cell(reader, construction, n, gap):
    for mean, error in excess(reader, n, gap, 40, construction=construction).values():
        assert mean >= -4 * error


def test_the_law_sees_a_threshold_that_is_too_low(reader, monkeypatch):
    from fareg.pvalues import CalibrationScores

    honest = CalibrationScores.quantiles
    monkeypatch.setattr(CalibrationScores, "quantiles", lambda s, alpha: honest(s, alpha + 0.05))
    cells = excess(reader, 200, 0.9, 40, construction="partition")
    assert any(mean < -4 * error for mean, error in cells.values())


@pytest.mark.parametrize("calibration", ["split", "train"])
@pytest.mark.parametrize("gap", [0.9, 0.0])
def test_levels_keep_their_promise_for_everyone_at_least_so_disadvantaged(reader, calibration, gap):
    """Through the whole classifier: rows that teach, split off or out of fold, do not calibrate."""
    rng = np.random.default_rng(11)
    n, hits = 400, {}
    for repeat in range(40):
        X, y = draw(rng, n + N_TEST, gap)
        clf = FaReGClassifier(
            reader().estimator,  # not frozen: fit trains it
            confidence_level=LEVEL,
            sensitive_features=[3, 4],
            learner=GroupLearner(members=("cells",)),
            calibration=calibration,
            random_state=repeat,
        ).fit(X[:n], y[:n])
        covered = clf.predict_set(X[n:])[np.arange(N_TEST), y[n:]]
        levels = clf.predict_level(X[n:])
        for m in np.unique(levels):
            at_least = levels >= m
            hits.setdefault(int(m), []).append((covered[at_least] - LEVEL).sum())
    assert gap == 0.0 or len(hits) > 1  # the group was found
    for excesses in hits.values():
        if len(excesses) >= 20:
            assert np.mean(excesses) >= -4 * np.std(excesses) / np.sqrt(len(excesses))
