"""P-values beside crepes, split conformal sets beside MAPIE and crepes, on ready probabilities."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from measure import N_LABELS, Ready, Row, in_child, in_turn, memory, seconds

from fareg import SplitConformalClassifier
from fareg.pvalues import conformal_pvalues

SIZES = (10_000, 100_000, 1_000_000)
LEVEL = 0.9
N_CATEGORIES = 20
MAX_LOOPS = 600_000_000  # comparisons that crepes may make; it is extrapolated beyond


class Given(Ready):
    """The features are the probabilities."""

    def predict_proba(self, X):
        return np.asarray(X)


def draw(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return probabilities of shape (n, N_LABELS) and labels drawn from them."""
    rng = np.random.default_rng(seed)
    proba = rng.standard_gamma(0.5, (n, N_LABELS))
    proba /= proba.sum(axis=1, keepdims=True)
    y = (proba.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    return proba, np.minimum(y, N_LABELS - 1)


def pvalues() -> dict:
    """Time p-values of 1,000 rows and six labels; crepes compares each with every point."""
    rows = [beside_crepes(n) for n in (1_000, 10_000, 100_000)]
    return {"rows": [*rows, beside_crepes(smoothed=True), beside_crepes(by_category=True)]}


def beside_crepes(n: int = 10_000, smoothed: bool = False, by_category: bool = False) -> Row:
    from crepes import ConformalClassifier

    rng = np.random.default_rng(0)
    calibration = rng.random(n).round(4)  # with ties
    scores = rng.random((1000, N_LABELS)).round(4)
    cells = own = None
    if by_category:
        cells, own = rng.integers(N_CATEGORIES, size=n), rng.integers(N_CATEGORIES, size=1000)
    u = np.random.RandomState(0).rand(*scores.shape)  # what crepes draws

    def ours():
        return conformal_pvalues(
            calibration,
            scores,
            calibration_categories=cells,
            categories=own[:, None] if by_category else None,
            u=u if smoothed else None,
        )

    def crepes():
        clf = ConformalClassifier().fit(calibration, bins=cells)
        return clf.predict_p(scores, bins=own, smoothing=smoothed, seed=0)

    (fast, mine), (slow, theirs) = in_turn(ours, crepes)
    what = "smoothed p-values" if smoothed else "p-values"
    what += f" in {N_CATEGORIES} categories" if by_category else ""
    note = f"largest difference {np.abs(mine - theirs).max():.0e}"
    return Row(f"{what}, {n:,} calibration rows", fast, "crepes", slow, note=note)


def ours(X_cal, y_cal, X, score):
    clf = SplitConformalClassifier(Given(), conformity_score=score, random_state=0)
    return clf.conformalize(X_cal, y_cal).predict_set(X)


def mapie(X_cal, y_cal, X, score):
    from mapie.classification import SplitConformalClassifier

    clf = SplitConformalClassifier(Given(), LEVEL, score).conformalize(X_cal, y_cal)
    # "randomized" is the published score, and what ours is; MAPIE ignores it for "lac"
    return clf.predict_set(X, {"include_last_label": "randomized"})[1][:, :, 0]


def crepes(X_cal, y_cal, X, score):
    """Return sets with the score ``hinge``, which is "lac"; crepes has no "aps"."""
    from crepes import WrapClassifier

    clf = WrapClassifier(Given()).calibrate(X_cal, y_cal)
    sets = clf.predict_set(X, labels=False, confidence=LEVEL, smoothing=False)
    return sets.astype(bool)


PACKAGES = {"fareg": ours, "MAPIE": mapie, "crepes": crepes}


def peak(folder: str, package: str, score: str, n_rows: int) -> float:
    """Return the peak of one package on stored data, whose loading does not count."""
    X_cal, y_cal, X = (np.load(Path(folder, f"{name}.npy")) for name in ("X_cal", "y_cal", "X"))
    PACKAGES[package](X_cal[:100], y_cal[:100], X[:100], score)  # imports do not count either
    with memory() as used:
        PACKAGES[package](X_cal, y_cal, X[:n_rows], score)
    return used.peak_mib


def beside(package: str, score: str, n: int) -> Row:
    """Compare with one package; crepes, beyond 10,000 rows, on the first few of them."""
    X_cal, y_cal = draw(n, seed=0)
    X, y = draw(n, seed=1)
    n_rows = min(n, MAX_LOOPS // (n * N_LABELS)) if package == "crepes" else n
    (fast, mine), (slow, theirs) = in_turn(
        lambda: ours(X_cal, y_cal, X, score),
        lambda: PACKAGES[package](X_cal, y_cal, X[:n_rows], score),
        repeats=3,
    )
    with tempfile.TemporaryDirectory() as folder:
        for name, array in (("X_cal", X_cal), ("y_cal", y_cal), ("X", X)):
            np.save(Path(folder, f"{name}.npy"), array)
        peaks = [
            in_child("split", "peak", folder=folder, package=p, score=score, n_rows=m)
            for p, m in (("fareg", n), (package, n_rows))
        ]
    if score == "lac":
        note = f"{np.mean((mine[:n_rows] == theirs).all(axis=1)):.2%} of the sets equal"
    else:
        covered = [sets[np.arange(n), y].mean() for sets in (mine, theirs)]
        note = "randomised; coverage {:.4f} and {:.4f}".format(*covered)
    if n_rows < n:
        setup, _ = seconds(lambda: PACKAGES[package](X_cal, y_cal, X[:1], score))
        slow = setup + (slow - setup) * n / n_rows
        peaks[1] = None
        note += f"; {package} extrapolated from {n_rows:,} rows"
    return Row(f"split, {score}, {n:,} + {n:,} rows", fast, package, slow, *peaks, note)


def split() -> dict:
    """Time conformalize on n rows and predict_set on n others, with the same scores."""
    cases = [("MAPIE", "lac"), ("crepes", "lac"), ("MAPIE", "aps")]
    return {"rows": [beside(*case, n) for case in cases for n in SIZES]}
