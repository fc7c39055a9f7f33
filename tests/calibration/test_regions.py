"""Learned regions: cells of people whose scores differ."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from fareg.calibration import Mondrian, RegionSearch, learn_region_cells
from fareg.pvalues import conformal_quantile
from tied_rows import make_rows


@pytest.fixture
def rows():
    """Rows of two kinds of people, whose scores differ."""
    rng = np.random.default_rng(0)
    kind = rng.choice(["left", "right"], 400)
    people = pd.DataFrame({"side": kind, "age": rng.integers(20, 25, 400) * 1.0})
    score = np.where(kind == "left", 1.0, 5.0) + rng.random(400)
    return replace(
        make_rows(3, 400, 2, unknown=0.0), people=people.astype({"side": object}), score=score
    )


def learned(rows, **changes):
    search = {"n_regions": 3, "model": "linear", "max_iter": 4, "n_restarts": 2, **changes}
    return learn_region_cells(rows, 0.2, RegionSearch(**search), np.random.default_rng(0))[0]


@pytest.mark.parametrize("model", ["linear", "network"])
def test_regions_separate_people_whose_scores_differ(rows, model):
    regions = learned(rows, n_regions=2, model=model)
    cells = regions.cells(rows)
    sides = rows.people["side"].to_numpy()
    assert len({(cell, side) for cell, side in zip(cells, sides, strict=True)}) == 2


def test_a_row_belongs_to_its_most_probable_region_in_use(rows):
    regions = learned(rows)
    h = regions.memberships(rows.people)
    np.testing.assert_allclose(h.sum(axis=1), 1)
    np.testing.assert_array_equal(
        regions.kept[regions.cells(rows)], regions.kept[h[:, regions.kept].argmax(axis=1)]
    )
    counts = np.bincount(h.argmax(axis=1), minlength=3)
    assert all(counts[kept] >= 4 for kept in regions.kept)  # few rows cannot be calibrated


def test_learned_regions_are_cells_like_others(rows):
    regions = learned(rows)
    found = Mondrian.fit(regions, rows, 0.2, label_conditional=False)
    cells = regions.cells(rows)
    for cell in np.unique(cells):
        eta = conformal_quantile(rows.score[cells == cell], confidence_level=0.8)
        assert (found.row_thresholds()[cells == cell] == eta).all()


def test_without_anything_to_learn_from_there_is_one_region(rows):
    unknown = replace(rows, score=np.full(len(rows), np.inf))
    regions = learned(unknown)
    assert regions.n_cells == 1
    assert (regions.cells(rows) == 0).all()
