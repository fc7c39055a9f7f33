"""Split conformal sets against MAPIE and crepes, from the same given probabilities."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from measure import N_LABELS, Ready, Row, in_child, in_turn, memory, seconds

from fareg import SplitConformalClassifier

SIZES = (10_000, 100_000, 1_000_000)
LEVEL = 0.9
MAX_LOOPS = 600_000_000  # comparisons that crepes may make; its time is extrapolated beyond


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


def ours(X_cal, y_cal, score):
    """Calibrate, and return the function that predicts sets of new rows."""
    clf = SplitConformalClassifier(Given(), conformity_score=score, random_state=0)
    return clf.conformalize(X_cal, y_cal).predict_set


def mapie(X_cal, y_cal, score):
    from mapie.classification import SplitConformalClassifier

    clf = SplitConformalClassifier(Given(), LEVEL, score).conformalize(X_cal, y_cal)
    # "randomized" is the published score, as is ours; MAPIE ignores it for "lac"
    return lambda X: clf.predict_set(X, {"include_last_label": "randomized"})[1][:, :, 0]


def crepes(X_cal, y_cal, score):
    """Use the score ``hinge``, which is "lac"; crepes has no "aps"."""
    from crepes import WrapClassifier

    clf = WrapClassifier(Given()).calibrate(X_cal, y_cal)
    options = {"labels": False, "confidence": LEVEL, "smoothing": False}
    return lambda X: clf.predict_set(X, **options).astype(bool)


PACKAGES = {"fareg": ours, "MAPIE": mapie, "crepes": crepes}


def peak(folder: str, package: str, score: str) -> float:
    """Return the peak of one package on stored data, whose loading does not count."""
    X_cal, y_cal, X = (np.load(Path(folder, f"{name}.npy")) for name in ("X_cal", "y_cal", "X"))
    PACKAGES[package](X_cal[:100], y_cal[:100], score)(X[:100])  # imports do not count either
    with memory() as used:
        PACKAGES[package](X_cal, y_cal, score)(X)
    return used.peak_mib


def peaks(X_cal, y_cal, X, packages, score) -> list[float]:
    with tempfile.TemporaryDirectory() as folder:
        for name, array in (("X_cal", X_cal), ("y_cal", y_cal), ("X", X)):
            np.save(Path(folder, f"{name}.npy"), array)
        return [in_child("split", "peak", folder=folder, package=p, score=score) for p in packages]


def against_mapie(score: str, n: int) -> Row:
    X_cal, y_cal = draw(n, seed=0)
    X, y = draw(n, seed=1)
    (fast, mine), (slow, theirs) = in_turn(
        lambda: ours(X_cal, y_cal, score)(X), lambda: mapie(X_cal, y_cal, score)(X)
    )
    if score == "lac":
        note = f"{np.mean((mine == theirs).all(axis=1)):.2%} of the sets equal"
    else:
        covered = [sets[np.arange(n), y].mean() for sets in (mine, theirs)]
        note = "randomised; coverage {:.4f} and {:.4f}".format(*covered)
    memories = peaks(X_cal, y_cal, X, ("fareg", "MAPIE"), score)
    return Row(f"split, {score}, {n:,} + {n:,} rows", fast, "MAPIE", slow, *memories, note)


def against_crepes(n: int) -> Row:
    """Compare with crepes, whose loops predict as many rows as time allows."""
    X_cal, y_cal = draw(n, seed=0)
    X, _ = draw(n, seed=1)
    n_rows = min(n, MAX_LOOPS // (n * N_LABELS))
    (fast, mine), (setup, predict) = in_turn(
        lambda: ours(X_cal, y_cal, "lac")(X), lambda: crepes(X_cal, y_cal, "lac")
    )
    few, theirs = seconds(lambda: predict(X[:n_rows]))
    note = f"{np.mean((mine[:n_rows] == theirs).all(axis=1)):.2%} of the sets equal"
    memories = [None, None]
    if n_rows < n:
        note += f"; crepes predicts {n_rows:,} rows, extrapolated"
    else:
        memories = peaks(X_cal, y_cal, X, ("fareg", "crepes"), "lac")
    slow = setup + few * n / n_rows
    return Row(f"split, lac, {n:,} + {n:,} rows", fast, "crepes", slow, *memories, note)


def measure() -> dict:
    """Time conformalize on n rows and predict_set on n others, with the same scores."""
    rows = [against_mapie(score, n) for score in ("lac", "aps") for n in SIZES]
    return {"rows": [*rows, *map(against_crepes, SIZES)]}
