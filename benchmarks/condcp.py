"""CondCP against MAPIE and conditionalconformal: time, and which thresholds are right.

All get the same scores (one minus the probability of the label) and the same basis. With every
category of four sensitive features as basis, fits are degenerate, and linear programs that include
the test point decide which are right: its dual variable must be below 1 - alpha under the
threshold, and equal to it above. A basis of numbers is in general position: there all must agree.
"""

from __future__ import annotations

import contextlib
import signal
import warnings

import numpy as np
from measure import Ready, Row, in_turn
from scipy.optimize import linprog

from fareg import CondCPClassifier
from fareg.datasets import make_synthetic

LEVEL = 0.9
N_LEVELS = (2, 2, 4, 5)
N_CALIBRATION = 1_000
N_CHECKED = 20
FAR = 1e3  # stands for an infinite score
PATIENCE = 1.0  # seconds per row: the peers' pivots may cycle


def numbers(n, seed=0):
    """Return Feature 1 and the sensitive features as category numbers, and labels."""
    data = make_synthetic(n, random_state=seed)
    codes = [np.unique(data.X[name], return_inverse=True)[1] for name in data.sensitive]
    return np.column_stack([data.X["Feature 1"], *codes]).astype(float), data.y


def levels(X):
    blocks = [X[:, [1 + k]] == np.arange(size) for k, size in enumerate(N_LEVELS)]
    return np.hstack(blocks).astype(float)


def with_constant(X):
    return np.column_stack([np.ones(len(X)), X[:, 1:]])


def score(X, y):
    return 1 - Ready().predict_proba(X)[np.arange(len(y)), y]


def ours(X_cal, y_cal, X, basis):
    clf = CondCPClassifier(
        Ready(), conformity_score="lac", feature_map=basis, random_state=0
    ).conformalize(X_cal, y_cal)
    return np.concatenate([clf.calibration_.thresholds(batch) for batch in clf._batches(X)])[:, 0]


def mapie(X_cal, y_cal, X, basis):
    from mapie.conditional_conformal_prediction import ConditionalSplitConformalClassifier

    clf = ConditionalSplitConformalClassifier(basis, Ready(), LEVEL, "lac")
    clf.conformalize(X_cal, y_cal)
    return each_row(X, lambda row: clf._predict_conditional_cutoff(LEVEL, row))


def conditionalconformal(X_cal, y_cal, X, basis):
    from conditionalconformal import CondConf

    class Flat(CondConf):
        """Version 0.0.5 uses arrays of one element as numbers, which numpy 2.4 refuses."""

        def _compute_exact_cutoff(self, quantiles, primals, duals, *others):
            return super()._compute_exact_cutoff(quantiles.ravel(), primals, duals.ravel(), *others)

    clf = Flat(score, basis)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of cvxpy
        clf.setup_problem(X_cal, y_cal)
    return each_row(X, lambda row: clf.predict(LEVEL, row, lambda cutoff, x: cutoff))


PEERS = {"MAPIE": mapie, "conditionalconformal": conditionalconformal}


def each_row(X, threshold):
    """Return the threshold of each row, NaN where the peer fails or takes too long."""

    def give_up(*_):
        raise TimeoutError

    thresholds = np.full(len(X), np.nan)
    handler = signal.signal(signal.SIGALRM, give_up)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # divisions by zero on degenerate bases
        for i, row in enumerate(X):
            signal.setitimer(signal.ITIMER_REAL, PATIENCE)
            with contextlib.suppress(np.linalg.LinAlgError, ValueError, TimeoutError):
                thresholds[i] = np.ravel(threshold(row[None, :]))[0]
            signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, handler)
    return thresholds


def n_right(Phi, S, basis_rows, thresholds, step=1e-6):
    """Count thresholds at which the dual variable of a test point reaches 0.9, and not before."""

    def reaches(phi, s):
        rows, scores = np.vstack([Phi, phi]), np.append(S, s)
        zeros = np.zeros(len(phi))
        dual = linprog(-scores, A_eq=rows.T, b_eq=zeros, bounds=(LEVEL - 1, LEVEL)).x
        return dual[-1] >= LEVEL - 1e-6

    return sum(
        not reaches(phi, min(t - step, FAR)) and (np.isinf(t) or reaches(phi, t + step))
        for phi, t in zip(basis_rows, thresholds, strict=True)
    )


def degenerate(peer: str, n: int = N_CALIBRATION, m: int = 300) -> Row:
    """Compare on the categories of four features."""
    X, y = numbers(n + m)
    X_cal, y_cal, X = X[:n], y[:n], X[n:]
    (fast, mine), (slow, theirs) = in_turn(
        lambda: ours(X_cal, y_cal, X, levels), lambda: PEERS[peer](X_cal, y_cal, X, levels)
    )
    answered = np.flatnonzero(~np.isnan(theirs))
    checked = answered[:N_CHECKED]
    Phi, S = levels(X_cal), score(X_cal, y_cal)
    right = [n_right(Phi, S, levels(X[checked]), values[checked]) for values in (mine, theirs)]
    note = (
        f"right thresholds {right[0]} and {right[1]} of {len(checked)}; "
        f"{peer} answers {len(answered)} of {m} rows"
    )
    return Row(f"CondCP, levels of 4 features, {n:,} + {m} rows", fast, peer, slow, note=note)


def in_general_position(peer: str, n: int = N_CALIBRATION, m: int = 200) -> Row:
    """Compare on a basis of numbers, where every row needs its own fit."""
    X, y = numbers(n + m)
    X[:, 1:] = np.random.default_rng(0).normal(size=X[:, 1:].shape)
    X_cal, y_cal, X = X[:n], y[:n], X[n:]
    (fast, mine), (slow, theirs) = in_turn(
        lambda: ours(X_cal, y_cal, X, with_constant),
        lambda: PEERS[peer](X_cal, y_cal, X, with_constant),
    )
    other = ~(np.abs(theirs - mine) < 1e-9)
    Phi, S = with_constant(X_cal), score(X_cal, y_cal)
    right = [n_right(Phi, S, with_constant(X[other]), values[other]) for values in (mine, theirs)]
    note = f"{m - other.sum()} of {m} thresholds equal"
    if other.any():
        note += f"; of the others ours are right {right[0]} times, theirs {right[1]} times"
    return Row(f"CondCP, 4 numbers, {n:,} + {m} rows", fast, peer, slow, note=note)


def measure() -> dict:
    return {
        "rows": [compare(peer) for compare in (degenerate, in_general_position) for peer in PEERS]
    }
