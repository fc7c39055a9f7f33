"""How soon a monitor finds lost coverage, and how often it is wrong: writes monitor.csv.

A thousand calibration rows; the worst-off group is 15% of the rows, and is missed more often from
row 2,000 on. "misses" changes only how often it is missed; "scores" shifts all of its scores, as a
new population does. The error of 5% is divided among 3 or 25 groups. The monitor looks at every
row, up to row 20,000 (100,000 without change).
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from measure import VERSION
from scipy.stats import norm

from fareg import CoverageMonitor, FaregWarning, PartialConformalClassifier

N_CALIBRATION, SHARE, CHANGE = 1000, 0.15, 2000


def moved(kind, misses, u):
    """Return scores after the change, which are uniform before it."""
    if kind == "scores":
        return norm.cdf(norm.ppf(u) + norm.ppf(0.9) - norm.ppf(1 - misses))
    missed = np.random.default_rng(len(u)).random(len(u)) < misses
    return np.where(missed, 0.9 + 0.1 * u, 0.9 * u)


def first_alarm(rng, kind, misses, n_rows, n_tests):
    """Return the row of the first alarm, infinite without any."""
    n = N_CALIBRATION + n_rows
    worst, scores = rng.random(n) < SHARE, rng.random(n)
    if misses is not None:
        later = np.flatnonzero(worst & (np.arange(n) >= N_CALIBRATION + CHANGE))
        scores[later] = moved(kind, misses, scores[later])
    X = pd.DataFrame({"group": np.where(worst, "worst", "rest")})
    proba, y = np.column_stack([1 - scores, scores]), np.full(n, "a")
    clf = PartialConformalClassifier(sensitive_features=["group"], conformity_score="lac")
    known, new = slice(0, N_CALIBRATION), slice(N_CALIBRATION, None)
    clf.conformalize(X[known], y[known], proba=proba[known], classes=["a", "b"])
    monitor = CoverageMonitor(clf, error=0.05 * 3 / n_tests)  # everyone and two cells
    monitor.update(X[new], y[new], proba=proba[new])
    return monitor.alarms[0].row if monitor.alarms else np.inf


def main() -> None:
    warnings.simplefilter("ignore", FaregWarning)
    rows = []
    for n_tests in (3, 25):
        for kind, misses in (
            *((kind, misses) for kind in ("misses", "scores") for misses in (0.15, 0.2, 0.3)),
            ("none", None),
        ):
            rng, n_runs = np.random.default_rng(0), 300
            n_rows = 20_000 if misses else 100_000
            alarms = [first_alarm(rng, kind, misses, n_rows, n_tests) for _ in range(n_runs)]
            delays = np.array(alarms) - (CHANGE if misses else n_rows)
            found = np.isfinite(delays) & (delays > 0)
            middle = np.median(np.where(delays > 0, delays, np.inf)) if misses else np.inf
            rows.append(
                {
                    "groups": n_tests,
                    "what_changes": kind,
                    "misses_after": misses,
                    "runs": n_runs,
                    "false_alarms": float((delays <= 0).mean()),
                    "found": float(found.mean()) if misses else None,
                    "median_rows": middle if np.isfinite(middle) else None,
                    "version": VERSION,
                }
            )
            print(rows[-1], flush=True)
    pd.DataFrame(rows).to_csv(Path(__file__).with_name("monitor.csv"), index=False)


if __name__ == "__main__":
    main()
