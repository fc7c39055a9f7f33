"""P-values against crepes, which compares every score with every calibration point."""

from __future__ import annotations

import numpy as np
from crepes import ConformalClassifier
from measure import N_LABELS, Row, in_turn

from fareg.pvalues import conformal_pvalues

N_CATEGORIES = 20


def against_crepes(n: int = 10_000, smoothed: bool = False, by_category: bool = False) -> Row:
    rng = np.random.default_rng(0)
    calibration = rng.random(n).round(4)  # with ties
    scores = rng.random((1000, N_LABELS)).round(4)
    cells = new_cells = None
    if by_category:
        cells = rng.integers(N_CATEGORIES, size=n)
        new_cells = rng.integers(N_CATEGORIES, size=1000)
    u = np.random.RandomState(0).rand(*scores.shape)  # what crepes draws

    def ours():
        return conformal_pvalues(
            calibration,
            scores,
            calibration_categories=cells,
            categories=new_cells[:, None] if by_category else None,
            u=u if smoothed else None,
        )

    def crepes():
        clf = ConformalClassifier().fit(calibration, bins=cells)
        return clf.predict_p(scores, bins=new_cells, smoothing=smoothed, seed=0)

    (fast, mine), (slow, theirs) = in_turn(ours, crepes)
    what = "smoothed p-values" if smoothed else "p-values"
    what += f" in {N_CATEGORIES} categories" if by_category else ""
    note = f"largest difference {np.abs(mine - theirs).max():.0e}"
    return Row(f"{what}, {n:,} calibration rows", fast, "crepes", slow, note=note)


def measure() -> dict:
    """Time p-values of 1,000 rows and six labels."""
    rows = [against_crepes(n) for n in (1_000, 10_000, 100_000)]
    return {"rows": [*rows, against_crepes(smoothed=True), against_crepes(by_category=True)]}
