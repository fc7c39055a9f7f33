"""Cells and unions of calibrations against loops over cells, views and labels."""

from dataclasses import dataclass

import numpy as np
import pytest

from fareg.calibration import (
    ABSENT,
    CellCalibration,
    Everyone,
    LevelCalibration,
    ReselectedCalibration,
    UnionCalibration,
)
from fareg.pvalues import conformal_pvalues, conformal_quantile

N_CELLS = (4, 2)


@dataclass(frozen=True)
class TwoViews:
    """Cells are the level, and its parity; a row with u above a half is absent from the second."""

    n_cells = N_CELLS

    def cells(self, rows):
        level = np.asarray(rows.X)[:, -1].astype(np.int64)
        parity = np.where(rows.uniforms < 0.5, level % 2, ABSENT)
        return np.stack([np.where(level < 4, level, -1), parity])

    def describe(self, view, cell):
        return f"cell {cell} of view {view}"


def slow_answers(rows, new, alpha, label_conditional):
    """Return thresholds and p-values per row and label by loops over rows, labels and views."""
    of_rows, of_new = TwoViews().cells(rows), TwoViews().cells(new)
    thresholds, p = np.full(new.scores.shape, -np.inf), np.zeros(new.scores.shape)
    for i, label in np.ndindex(new.scores.shape):
        for known, own in zip(of_rows, of_new[:, i], strict=True):
            if own == ABSENT:
                continue
            inside = (known == own) if own >= 0 else np.zeros(len(rows), dtype=bool)
            if label_conditional:
                inside &= rows.codes == label
            scores = rows.own_scores[inside]
            eta = conformal_quantile(scores, confidence_level=1 - alpha)
            thresholds[i, label] = max(thresholds[i, label], eta)
            p[i, label] = max(p[i, label], conformal_pvalues(scores, [new.scores[i, label]])[0])
    return thresholds, p


@pytest.mark.parametrize("label_conditional", [False, True])
@pytest.mark.parametrize("alpha", [0.25, 0.5])
def test_cells_equal_a_loop_over_cells(make_rows, label_conditional, alpha):
    rows, new = make_rows(0, 200, 4), make_rows(1, 50, 5)  # level 4 is never calibrated
    found = CellCalibration.of(TwoViews(), rows, alpha, label_conditional=label_conditional)
    thresholds, p = slow_answers(rows, new, alpha, label_conditional)
    got = np.broadcast_to(found.thresholds(new), thresholds.shape)
    np.testing.assert_array_equal(got, thresholds)
    np.testing.assert_array_equal(found.pvalues(new), p)
    np.testing.assert_array_equal(p > alpha, new.scores <= thresholds)


def test_full_sets_are_the_cells_with_infinite_thresholds(make_rows):
    rows = make_rows(2, 60, 4)
    found = CellCalibration.of(TwoViews(), rows, 0.02, label_conditional=False)
    cells = TwoViews().cells(rows)
    expected = [
        f"cell {cell} of view {view}"
        for view, n_cells in enumerate(N_CELLS)
        for cell in range(n_cells)
        if np.isinf(conformal_quantile(rows.own_scores[cells[view] == cell], confidence_level=0.98))
    ]
    assert expected
    assert [full.who for full in found.full_sets()] == expected


@pytest.mark.parametrize("label_conditional", [False, True])
def test_a_union_is_the_largest_of_its_parts(make_rows, leveler, label_conditional):
    rows, new = make_rows(3, 200, 4), make_rows(4, 50, 4)
    common = {"alpha": 0.2, "label_conditional": label_conditional}
    parts = (
        LevelCalibration.of(leveler(4), rows, **common),
        CellCalibration.of(TwoViews(), rows, **common),
        CellCalibration.of(Everyone(), rows, **common),
    )
    union = UnionCalibration(parts)
    union.check(new, 3 if label_conditional else None, 0.2)
    thresholds = np.max([part.thresholds(new) for part in parts], axis=0)
    np.testing.assert_array_equal(union.thresholds(new), thresholds)
    np.testing.assert_array_equal(
        union.pvalues(new), np.max([part.pvalues(new) for part in parts], axis=0)
    )
    sets = new.scores <= union.thresholds(new)
    each = [new.scores <= part.thresholds(new) for part in parts]
    np.testing.assert_array_equal(sets, np.logical_or.reduce(each))
    np.testing.assert_array_equal(sets, union.pvalues(new) > 0.2)
    assert union.has_pvalues
    assert union.n_rows == 200
    all_full = [full for part in parts for full in part.full_sets()]
    assert list(union.full_sets()) == all_full


@dataclass(frozen=True)
class FirstSelected:
    """Cells are the values of the first sensitive feature, whatever it is."""

    n_cells = (4,)

    def cells(self, rows):
        return rows.columns.iloc[:, 0].to_numpy().astype(np.int64)[None]


def test_a_reselected_calibration_reads_its_own_features(make_rows):
    rows, new = make_rows(5, 200, 4), make_rows(6, 50, 4)
    chosen = rows.selecting([3])
    part = CellCalibration.of(FirstSelected(), chosen, 0.2, label_conditional=False)
    found = ReselectedCalibration(part, [3])
    np.testing.assert_array_equal(
        found.thresholds(new.selecting([0])), part.thresholds(new.selecting([3]))
    )
    np.testing.assert_array_equal(
        found.pvalues(new.selecting([0])), part.pvalues(new.selecting([3]))
    )
    assert (found.n_rows, found.has_pvalues) == (200, True)
