"""Quantiles of soft regions against the definition of a weighted quantile; regions as cells."""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest

from fareg.calibration import (
    Mondrian,
    RegionQuantiles,
    RegionSearch,
    further_uniforms,
    learn_region_cells,
)
from fareg.pvalues import conformal_quantile
from tied_rows import LevelColumn, make_batch, make_rows


@dataclass(frozen=True)
class ThreeRegions:
    """Memberships in eighths that depend on the level; the region of a row is its largest."""

    def memberships(self, people):
        level = LevelColumn(4).levels(people)
        return np.array([[1, 1, 6], [5, 2, 1], [2, 4, 2], [0, 7, 1]])[level] / 8

    def cells(self, rows):
        return self.memberships(rows.people).argmax(axis=1)


def weighted_quantile(scores, weights, alpha):
    """Return the smallest score at or below which a share ``1 - alpha`` of the weight lies."""
    for value in sorted(scores):
        if weights[scores <= value].sum() >= (1 - alpha) * weights.sum():
            return value
    return np.inf


@pytest.mark.parametrize("label_conditional", [False, True])
@pytest.mark.parametrize("alpha", [0.125, 0.25, 0.5])  # exact in binary, as the weights are
def test_regions_equal_a_loop_over_regions_and_labels(label_conditional, alpha):
    rows, batch, regions = make_rows(0, 120, 4), make_batch(1, 40, 4), ThreeRegions()
    found = RegionQuantiles.fit(regions, rows, alpha, label_conditional=label_conditional)
    h, everyone = regions.memberships(rows.people), np.ones(len(rows), dtype=bool)
    problems = [rows.y == k for k in range(3)] if label_conditional else [everyone]
    expected = [
        [weighted_quantile(rows.score[own], h[own, region], alpha) for own in problems]
        for region in regions.cells(batch)
    ]
    np.testing.assert_array_equal(found.thresholds(batch), expected)


def test_of_a_cluster_one_row_counts():
    rows, batch = make_rows(0, 120, 4, n_clusters=50), make_batch(1, 40, 4)
    found = RegionQuantiles.fit(ThreeRegions(), rows, 0.25, label_conditional=False)
    apart = replace(rows.take(rows.independent_rows()), clusters=None)
    alone = RegionQuantiles.fit(ThreeRegions(), apart, 0.25, label_conditional=False)
    assert len(found.sample) == rows.n_people
    np.testing.assert_array_equal(found.thresholds(batch), alone.thresholds(batch))


def test_a_label_without_rows_is_kept_everywhere():
    rows, batch = make_rows(2, 60, 4, unknown=0.0), make_batch(2, 60, 4)
    part = rows.take(np.flatnonzero(rows.y != 1))
    thresholds = RegionQuantiles.fit(ThreeRegions(), part, 0.25, label_conditional=True).thresholds(
        batch
    )
    assert np.isinf(thresholds[:, 1]).all()
    assert np.isfinite(thresholds[:, [0, 2]]).all()


# --- regions that are learned ---


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


def learned(rows, *, drawn, **changes):
    search = {"n_regions": 3, "model": "linear", "max_iter": 4, "n_restarts": 2, **changes}
    return learn_region_cells(
        rows,
        0.2,
        RegionSearch(**search),
        target="rank",
        drawn=drawn,
        rng=np.random.default_rng(0),
    )


@pytest.mark.parametrize("model", ["linear", "network"])
def test_regions_separate_people_whose_scores_differ(rows, model):
    regions, quantiles, _, _ = learned(rows, drawn=False, n_regions=2, model=model)
    cells = regions.cells(rows)
    sides = rows.people["side"].to_numpy()
    assert len({(cell, side) for cell, side in zip(cells, sides, strict=True)}) == 2
    assert sorted(np.round(quantiles)) == [2, 6]


def test_a_row_belongs_to_its_most_probable_region_in_use(rows):
    regions, *_ = learned(rows, drawn=False)
    h = regions.memberships(rows.people)
    np.testing.assert_allclose(h.sum(axis=1), 1)
    np.testing.assert_array_equal(
        regions.kept[regions.cells(rows)], regions.kept[h[:, regions.kept].argmax(axis=1)]
    )
    counts = np.bincount(h.argmax(axis=1), minlength=3)
    assert all(counts[kept] >= 4 for kept in regions.kept)  # few rows cannot be calibrated


def test_drawn_regions_follow_the_memberships(rows):
    regions, *_ = learned(rows, drawn=True)
    h = regions.memberships(rows.people)
    u = further_uniforms(rows.u, 1)
    steps = np.cumsum(h, axis=1)
    expected = [np.flatnonzero(own > u[i])[:1].sum() for i, own in enumerate(steps)]
    np.testing.assert_array_equal(regions.cells(rows), expected)
    rng, shares = np.random.default_rng(1), np.zeros(3)
    for _ in range(50):
        cells = regions.cells(replace(rows, u=rng.random(len(rows))))
        shares += np.bincount(cells, minlength=3) / (50 * len(rows))
    np.testing.assert_allclose(shares, h.mean(axis=0), atol=4 * 0.5 / np.sqrt(50 * len(rows)))


def test_learned_regions_are_cells_like_others(rows):
    regions, *_ = learned(rows, drawn=False)
    found = Mondrian.fit(regions, rows, 0.2, label_conditional=False)
    cells = regions.cells(rows)
    for cell in np.unique(cells):
        eta = conformal_quantile(rows.score[cells == cell], confidence_level=0.8)
        assert (found.of_rows()[cells == cell] == eta).all()


@pytest.mark.parametrize("drawn", [False, True])
def test_without_anything_to_learn_from_there_is_one_region(rows, drawn):
    unknown = replace(rows, score=np.full(len(rows), np.inf))
    regions, *_ = learned(unknown, drawn=drawn)
    assert regions.n_cells == 1
    assert (regions.cells(rows) == 0).all()
