"""CondCP beside MAPIE and conditionalconformal: time, and whose thresholds are right.

All get the same scores (one minus the probability of the label) and the same basis. With every
level of four sensitive features as basis, fits are degenerate, and who is right is settled by
linear programs with the test point in them: its dual variable must be below 1 - alpha under the
threshold, and at it above. A basis of numbers is in general position, and there all must agree.
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
PATIENCE = 1.0  # seconds per row: the peers' pivots can go in circles


def numbers(n, seed=0):
    """Return Feature 1 and the sensitive features as level numbers, and labels."""
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
    return clf._thresholds(X)[:, 0]


def mapie(X_cal, y_cal, X, basis):
    from mapie.conditional_conformal_prediction import ConditionalSplitConformalClassifier

    clf = ConditionalSplitConformalClassifier(basis, Ready(), LEVEL, "lac")
    clf.conformalize(X_cal, y_cal)
    return each_row(X, lambda row: clf._predict_conditional_cutoff(LEVEL, row))


def conditionalconformal(X_cal, y_cal, X, basis):
    from conditionalconformal import CondConf

    class Flat(CondConf):
        """Version 0.0.5 takes arrays of one element for numbers, which numpy 2.4 refuses."""

        def _compute_exact_cutoff(self, quantiles, primals, duals, *rest):
            return super()._compute_exact_cutoff(quantiles.ravel(), primals, duals.ravel(), *rest)

    clf = Flat(score, basis)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of cvxpy
        clf.setup_problem(X_cal, y_cal)
    return each_row(X, lambda row: clf.predict(LEVEL, row, lambda cutoff, x: cutoff))


PEERS = {"MAPIE": mapie, "conditionalconformal": conditionalconformal}


def each_row(X, threshold):
    """Return the threshold of each row, NaN where the peer fails or does not come back."""

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


def is_right(Phi, S, phi, threshold, step=1e-6):
    """Does the dual variable of a test point reach 0.9 at the threshold, and not before?"""

    def dual_variable(s):
        rows, scores = np.vstack([Phi, phi]), np.append(S, s)
        zeros = np.zeros(len(phi))
        return linprog(-scores, A_eq=rows.T, b_eq=zeros, bounds=(LEVEL - 1, LEVEL)).x[-1]

    under, over = dual_variable(threshold - step), dual_variable(threshold + step)
    return bool(under < LEVEL - 1e-6 <= over)


def beside(peer: str, n: int = N_CALIBRATION, m: int = 300) -> Row:
    """Compare on the levels of four features."""
    X, y = numbers(n + m)
    X_cal, y_cal, X = X[:n], y[:n], X[n:]
    (fast, mine), (slow, theirs) = in_turn(
        lambda: ours(X_cal, y_cal, X, levels), lambda: PEERS[peer](X_cal, y_cal, X, levels)
    )
    answered = np.flatnonzero(~np.isnan(theirs))
    Phi, S = levels(X_cal), score(X_cal, y_cal)
    right = [
        sum(is_right(Phi, S, levels(X[[i]])[0], values[i]) for i in answered[:N_CHECKED])
        for values in (mine, theirs)
    ]
    n_checked = len(answered[:N_CHECKED])
    note = (
        f"right thresholds {right[0]} and {right[1]} of {n_checked}; "
        f"{peer} answers {len(answered)} of {m} rows"
    )
    return Row(f"CondCP, levels of 4 features, {n:,} + {m} rows", fast, peer, slow, note=note)


def in_general_position(peer: str, n: int = N_CALIBRATION, m: int = 200) -> Row:
    """Compare on a basis of numbers, where no two rows are alike: a fit for every row."""
    X, y = numbers(n + m)
    X[:, 1:] = np.random.default_rng(0).normal(size=X[:, 1:].shape)
    X_cal, y_cal, X = X[:n], y[:n], X[n:]
    (fast, mine), (slow, theirs) = in_turn(
        lambda: ours(X_cal, y_cal, X, with_constant),
        lambda: PEERS[peer](X_cal, y_cal, X, with_constant),
    )
    note = f"{np.mean(np.abs(theirs - mine) < 1e-9):.1%} of the thresholds equal"
    return Row(f"CondCP, 4 numbers, {n:,} + {m} rows", fast, peer, slow, note=note)


def measure() -> dict:
    return {"rows": [compare(peer) for compare in (beside, in_general_position) for peer in PEERS]}
