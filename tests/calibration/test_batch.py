"""Rows of a call: what labels leave of them, parts of them, one row of each cluster."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chisquare, kstest, spearmanr

from fareg.calibration import Labelled, Sample, further_uniforms
from tied_rows import make_batch, make_rows

FALSE_ALARM = 1e-4
ARRAYS = ("score", "y", "u", "surprise")


def same_rows(one, other):
    """Assert that two sets of labelled rows are equal in everything."""
    pd.testing.assert_frame_equal(one.people, other.people)
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    np.testing.assert_equal(one.clusters, other.clusters)
    assert one.n_classes == other.n_classes


def test_labels_leave_their_score_and_their_surprise():
    batch, y = make_batch(0, 30, 4), np.random.default_rng(0).integers(-1, 3, 30)
    rows = batch.labelled(y)
    for i, label in enumerate(y):
        if label < 0:
            assert (rows.score[i], rows.surprise[i]) == (np.inf, 1.0)
        else:
            p = batch.proba[i]
            assert rows.score[i] == batch.scores[i, label]
            assert rows.surprise[i] == pytest.approx(sum(p * p) - p[label])
    assert (rows.n_classes, rows.n_people) == (3, 30)


def test_surprise_is_zero_on_average_where_the_model_is_right():
    batch, rng = make_batch(1, 20_000, 1), np.random.default_rng(1)
    y = (rng.random((20_000, 1)) >= batch.proba.cumsum(axis=1)).sum(axis=1).clip(max=2)
    surprise = batch.labelled(y).surprise
    assert abs(surprise.mean()) < 4 * surprise.std() / np.sqrt(len(surprise))


@pytest.mark.parametrize("n_clusters", [None, 25])
def test_parts_make_the_table_again(n_clusters):
    rows = make_rows(3, 60, 4, n_clusters=n_clusters)
    cuts = [np.arange(0, 20), np.arange(20, 21), np.arange(21, 60)]
    same_rows(Labelled.joined([rows.take(part) for part in cuts]), rows)


def test_people_count_once():
    rows = make_rows(5, 60, 4, n_clusters=25)
    counts = pd.Series(rows.clusters).value_counts()
    assert rows.n_people == len(counts)
    sizes = Sample.from_rows(rows, label_conditional=False).sizes
    np.testing.assert_array_equal(sizes, counts[rows.clusters])


# --- one row of each cluster ---


def test_one_row_of_each_cluster_is_chosen():
    alone = make_rows(6, 40, 4)
    assert alone.one_of_each_cluster() is alone
    rows = make_rows(7, 200, 4, n_clusters=40)
    chosen = rows.independent_rows()
    assert sorted(rows.clusters[chosen]) == sorted(set(rows.clusters))
    assert (np.diff(chosen) > 0).all()
    same_rows(rows.one_of_each_cluster(), rows.take(chosen))


def test_the_chosen_rows_do_not_depend_on_the_order_of_rows():
    rows = make_rows(8, 200, 4, n_clusters=40)
    order = np.random.default_rng(0).permutation(200)
    chosen = order[rows.take(order).independent_rows()]
    assert sorted(chosen) == rows.independent_rows().tolist()


def test_each_row_of_a_cluster_is_as_likely_as_any_other_whatever_its_own_number():
    """Fails if the number of the score chooses: then small ones would be chosen."""
    repeats, size, rng = 6000, 4, np.random.default_rng(0)
    rows = make_rows(9, repeats * size, 4)
    rows = replace(rows, u=rng.random(len(rows)), clusters=np.repeat(np.arange(repeats), size))
    chosen = rows.independent_rows()
    assert chisquare(np.bincount(chosen % size, minlength=size)).pvalue > FALSE_ALARM
    rank = (rows.u.reshape(repeats, size) < rows.u[chosen][:, None]).sum(axis=1)
    assert chisquare(np.bincount(rank, minlength=size)).pvalue > FALSE_ALARM
    assert kstest(rows.u[chosen], "uniform").pvalue > FALSE_ALARM


# --- further random numbers of a row ---


def test_further_numbers_are_uniform_and_independent_of_the_first_and_of_each_other():
    u = np.random.default_rng(0).random(20_000)
    numbers = [u, *(further_uniforms(u, purpose) for purpose in (1, 2, 3))]
    n_pairs = 6
    for column in numbers[1:]:
        assert kstest(column, "uniform").pvalue > FALSE_ALARM / 3
        assert ((column >= 0) & (column < 1)).all()
    for j in range(len(numbers)):
        for i in range(j):
            assert spearmanr(numbers[i], numbers[j]).pvalue > FALSE_ALARM / n_pairs
            # a finer look than correlation: both numbers fall into all cells of a grid alike
            grid = (numbers[i] * 10).astype(int) * 10 + (numbers[j] * 10).astype(int)
            assert chisquare(np.bincount(grid, minlength=100)).pvalue > FALSE_ALARM / n_pairs
