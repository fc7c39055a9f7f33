"""Cells and unions of calibrations against loops over cells, parts and labels."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from fareg._columns import canonical
from fareg._levels import LevelCoding
from fareg._validation import FaregWarning
from fareg.calibration import (
    ABSENT,
    Batch,
    Everyone,
    JointLevels,
    LevelThresholds,
    Mondrian,
    Sample,
    Union,
)
from fareg.pvalues import conformal_pvalues, conformal_quantile
from tied_rows import (
    LevelCells,
    LevelColumn,
    LevelsByLabel,
    ParityCells,
    make_batch,
    make_rows,
)

PARTS = {"levels": LevelCells(), "parity": ParityCells(), "everyone": Everyone()}
unseen = pytest.mark.filterwarnings("ignore:.*calibration never saw:fareg.FaregWarning")


def slow_answers(groups, rows, batch, alpha, label_conditional):
    """Return thresholds and p-values per row and label by loops over rows and labels."""
    cells, wanted = groups.cells(rows), groups.cells(batch)
    thresholds, p = np.full(batch.scores.shape, -np.inf), np.zeros(batch.scores.shape)
    for i, label in np.ndindex(batch.scores.shape):
        if wanted[i] == ABSENT:
            continue
        inside = (cells == wanted[i]) & (wanted[i] >= 0)
        if label_conditional:
            inside &= rows.y == label
        scores = rows.score[inside]
        thresholds[i, label] = conformal_quantile(scores, confidence_level=1 - alpha)
        p[i, label] = conformal_pvalues(scores, [batch.scores[i, label]])[0]
    return thresholds, p


@unseen
@pytest.mark.parametrize("label_conditional", [False, True])
@pytest.mark.parametrize("alpha", [0.25, 0.5])
@pytest.mark.parametrize("name", PARTS)
def test_cells_equal_a_loop_over_cells(name, label_conditional, alpha):
    rows, batch = make_rows(0, 200, 4), make_batch(1, 50, 5)  # level 4 is never calibrated
    found = Mondrian.fit(PARTS[name], rows, alpha, label_conditional=label_conditional)
    thresholds, p = slow_answers(PARTS[name], rows, batch, alpha, label_conditional)
    got = np.broadcast_to(found.thresholds(batch), thresholds.shape)
    np.testing.assert_array_equal(got, thresholds)
    np.testing.assert_array_equal(found.pvalues(batch), p)
    np.testing.assert_array_equal(p > alpha, batch.scores <= thresholds)


def test_rows_that_calibration_never_saw_get_a_full_set_and_one_warning():
    rows, batch = make_rows(0, 200, 4), make_batch(1, 50, 5)
    found = Mondrian.fit(LevelCells(), rows, 0.25, label_conditional=False)
    n_unseen = int((batch.people["level"] == 4).sum())
    with pytest.warns(FaregWarning, match=f"{n_unseen} of 50 rows") as caught:
        thresholds = found.thresholds(batch)
    assert len(caught) == 1
    np.testing.assert_array_equal(np.isinf(thresholds[:, 0]), batch.people["level"] == 4)


@pytest.mark.parametrize("groups", [LevelCells(), ParityCells()])
def test_full_sets_are_the_cells_with_infinite_thresholds(groups):
    rows = make_rows(2, 60, 4)
    found = Mondrian.fit(groups, rows, 0.02, label_conditional=False)
    cells = groups.cells(rows)
    expected = [
        groups.describe(cell)
        for cell in range(groups.n_cells)
        if np.isinf(conformal_quantile(rows.score[cells == cell], confidence_level=0.98))
    ]
    assert expected
    assert [who for who, _ in found.full_sets()] == expected


# --- the levels of real columns ---


@pytest.fixture
def people():
    rng = np.random.default_rng(0)
    columns = {"sex": rng.choice(["f", "m"], 300), "age": rng.normal(40, 12, 300)}
    return canonical(pd.DataFrame(columns))


def test_joint_levels_are_the_calibration_of_each_combination(people):
    rows, batch = replace(make_rows(4, 300, 4), people=people), make_batch(5, 300, 4)
    coding = LevelCoding.learn(people)
    found = Mondrian.fit(JointLevels.learn(coding, rows), rows, 0.2, label_conditional=False)
    thresholds = found.thresholds(replace(batch, people=people))
    codes = coding.codes(people)
    assert found.groups.n_cells == 2 * 4
    for combination in np.unique(codes, axis=0):
        inside = (codes == combination).all(axis=1)
        eta = conformal_quantile(rows.score[inside], confidence_level=0.8)
        assert (thresholds[inside] == eta).all()


# --- a union, the thresholds of calibration rows, and the same groups with other rows ---


def united(rows, label_conditional, levels=None):
    common = {"alpha": 0.2, "label_conditional": label_conditional}
    parts = (
        LevelThresholds.fit(levels or LevelColumn(4), rows, **common),
        Mondrian.fit(LevelCells(), rows, **common),
        Mondrian.fit(ParityCells(), rows, **common),
        Mondrian.fit(Everyone(), rows, **common),
    )
    return Union(parts)


@pytest.mark.parametrize(
    ("label_conditional", "levels"), [(False, None), (True, None), (True, LevelsByLabel(4))]
)
def test_a_union_is_the_largest_of_its_parts(label_conditional, levels):
    rows, batch = make_rows(3, 200, 4), make_batch(4, 50, 4)
    union = united(rows, label_conditional, levels)
    union.check(batch, 3 if label_conditional else None, 0.2)
    thresholds = np.max([part.thresholds(batch) for part in union.parts], axis=0)
    np.testing.assert_array_equal(union.thresholds(batch), thresholds)
    np.testing.assert_array_equal(
        union.pvalues(batch), np.max([part.pvalues(batch) for part in union.parts], axis=0)
    )
    sets = batch.scores <= union.thresholds(batch)
    each = [batch.scores <= part.thresholds(batch) for part in union.parts]
    np.testing.assert_array_equal(sets, np.logical_or.reduce(each))
    np.testing.assert_array_equal(sets, union.pvalues(batch) > 0.2)
    assert union.has_pvalues
    assert len(union.sample) == 200
    assert list(union.full_sets()) == [full for part in union.parts for full in part.full_sets()]


PIECES = {
    "levels": (lambda rows, by_label: united(rows, by_label).parts[0]),
    "cells": (lambda rows, by_label: united(rows, by_label).parts[1]),
    "members": (lambda rows, by_label: united(rows, by_label).parts[2]),
    "union": united,
    "orders": (lambda rows, _: united(rows, True, LevelsByLabel(4))),
}


@pytest.mark.parametrize("n_clusters", [None, 60])
@pytest.mark.parametrize("label_conditional", [False, True])
@pytest.mark.parametrize("name", PIECES)
def test_places_and_scores_are_all_that_other_rows_leave_behind(
    name, label_conditional, n_clusters
):
    """``again`` with the sample and the places of other rows equals fitting these rows anew."""
    label_conditional |= name == "orders"
    first = PIECES[name](make_rows(5, 150, 4), label_conditional)
    rows, batch = make_rows(6, 180, 4, n_clusters=n_clusters), make_batch(7, 50, 4)
    sample = Sample.from_rows(rows, label_conditional=label_conditional)
    again = first.with_sample(sample, first.places(rows))
    anew = PIECES[name](rows, label_conditional)
    again.check(batch, 3 if label_conditional else None, 0.2)
    np.testing.assert_array_equal(again.thresholds(batch), anew.thresholds(batch))
    np.testing.assert_array_equal(again.pvalues(batch), anew.pvalues(batch))
    np.testing.assert_array_equal(again.row_thresholds(), anew.row_thresholds())
    assert list(again.full_sets()) == list(anew.full_sets())
    # other rows count alone: nothing of the first ones is left
    assert not np.array_equal(again.thresholds(batch), first.thresholds(batch))


@pytest.mark.parametrize("label_conditional", [False, True])
@pytest.mark.parametrize("name", PIECES)
def test_thresholds_of_calibration_rows_are_those_of_their_true_labels(name, label_conditional):
    label_conditional |= name == "orders"
    rows = make_rows(8, 180, 4)
    found = PIECES[name](rows, label_conditional)
    n = len(rows)
    nothing = np.zeros((n, rows.n_classes))
    batch = Batch(rows.people, nothing, nothing, rows.u)
    thresholds = np.broadcast_to(found.thresholds(batch), nothing.shape)
    expected = thresholds[np.arange(n), rows.y]
    if label_conditional:  # an unknown label has no threshold, except where nothing is promised
        promised = (thresholds > -np.inf).any(axis=1)
        expected = np.where((rows.y < 0) & promised, np.inf, expected)
    np.testing.assert_array_equal(found.row_thresholds(), expected)


def test_parts_that_contradict_each_other_are_refused():
    rows, batch = make_rows(9, 100, 4), make_batch(10, 20, 4)
    whole = Mondrian.fit(LevelCells(), rows, 0.1, label_conditional=True)
    whole.check(batch, 3, 0.1)
    for part in ({"alpha": 0.2}, {"cells": whole.cells - 4}):
        with pytest.raises(ValueError, match="contradict"):
            replace(whole, **part).check(batch, 3, 0.1)
    with pytest.raises(ValueError, match="contradict"):
        whole.check(batch, None, 0.1)
    with pytest.raises(ValueError, match="contradict"):
        Union(()).check(batch, 3, 0.1)
