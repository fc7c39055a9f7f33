"""Which rows teach, what they teach, and how learned disadvantage is cut into levels."""

from types import SimpleNamespace

import numpy as np
import pytest

from fareg import (
    FaregWarning,
)
from fareg.calibration import Rows
from fareg.classifiers._learning import (
    MAX_LEARNING_ROWS,
    coverage_to_learn,
    covered_by_split,
    divide_rows,
    overconfidence,
)
from fareg.classifiers._views import level_edges
from fareg.scores import aps, lac


def clustered(sizes):
    """Return rows whose only column is their number, of clusters with these sizes."""
    X = np.arange(sum(sizes))[:, None]
    clusters = np.repeat(np.arange(len(sizes)), sizes)
    return Rows(X, ask=None, score=None, selection=None, key=0, clusters=clusters)


@pytest.mark.parametrize("sizes", [[20] * 10, [7] * 41, [300, *[1] * 30]])
def test_clusters_are_divided_whole_and_in_random_order(sizes):
    rows = clustered(sizes)
    parts = divide_rows(rows, None, "split", 0, "look for a group")
    numbers = [part.X[:, 0] for part in parts]
    np.testing.assert_array_equal(np.sort(np.concatenate(numbers)), np.arange(len(rows)))
    ids = [set(part.clusters) for part in parts]
    assert not ids[0] & ids[1]
    assert len(ids[0]) == len(sizes) // 2
    for own in numbers:
        assert abs(np.corrcoef(own, np.arange(len(own)))[0, 1]) < 4 / len(own) ** 0.5


def test_many_rows_of_few_clusters_are_told_the_true_cause():
    with pytest.warns(FaregWarning, match="3 clusters of calibration rows are too few") as caught:
        learning, rest = divide_rows(clustered([70_000] * 3), None, "split", 0, "look for a group")
    assert (len(learning), len(rest), len(caught)) == (0, 210_000, 1)
    learning, rest = divide_rows(clustered([20_000] * 12), None, "split", 0, "look for a group")
    assert len(learning) == MAX_LEARNING_ROWS
    assert len(set(learning.clusters)) == 5
    assert len(rest) == 140_000


def test_there_are_no_more_levels_than_calibration_rows_support():
    disadvantage = np.linspace(0, 1, 1000)
    n_levels = [len(level_edges(disadvantage, 20, n)) + 1 for n in (0, 29, 60, 300, 10_000)]
    assert n_levels == [1, 1, 2, 10, 20]


@pytest.mark.parametrize(("n_learning", "n_calibration"), [(20_000, 10_000), (900, 10_000)])
def test_the_highest_level_is_halved_down_to_thirty_rows(n_learning, n_calibration):
    disadvantage = np.random.default_rng(0).random(n_learning)
    equal = level_edges(disadvantage, 20, n_calibration)
    finer = level_edges(disadvantage, 20, n_calibration, finer=True)
    np.testing.assert_array_equal(finer[: len(equal)], equal)
    above = np.array([(disadvantage > edge).sum() for edge in finer[len(equal) - 1 :]])
    assert (above[1:] <= above[:-1] - 30).all()  # the lower half of each cut has rows, too
    fewest = min(above[-1], above[-1] * n_calibration / n_learning)
    assert 30 <= fewest < 120


def test_a_thousand_calibration_rows_leave_nothing_to_halve():
    disadvantage = np.random.default_rng(0).random(1000)
    edges = [level_edges(disadvantage, 20, 1000, finer=finer) for finer in (False, True)]
    np.testing.assert_array_equal(*edges)


@pytest.mark.parametrize("share", [0.01, 0.016, 0.02])
def test_one_in_a_hundred_who_stand_out_share_no_level_with_the_rest(share):
    rng = np.random.default_rng(0)
    n, n_out = 10_000, int(10_000 * share)
    disadvantage = np.r_[rng.uniform(0, 0.4, n - n_out), rng.uniform(0.6, 0.7, n_out)]
    edges = level_edges(disadvantage, 20, n, finer=True)
    assert ((edges >= disadvantage[: n - n_out].max()) & (edges < 0.6)).sum() == 1


@pytest.mark.parametrize("share", [0.07, 0.13, 0.31])
def test_a_group_that_stands_out_shares_no_level_with_the_rest(share):
    rng = np.random.default_rng(0)
    inside = np.arange(2000) < share * 2000
    disadvantage = np.where(inside, 0.6, 0.2) + rng.uniform(-0.1, 0.1, 2000)
    levels = np.searchsorted(level_edges(disadvantage, 20, 4000), disadvantage)
    assert levels[inside].min() > levels[~inside].max()


def test_overconfidence_has_mean_zero_where_probabilities_are_true():
    rng = np.random.default_rng(0)
    proba = rng.dirichlet([0.5, 1.0, 2.0], size=4000)
    true = (rng.random((4000, 1)) > proba.cumsum(axis=1)[:, :-1]).sum(axis=1)

    def mean_in_standard_errors(told):
        rows = Rows(np.zeros((4000, 1)), ask=None, score=None, selection=None, key=0, codes=true)
        vars(rows)["proba"] = told
        gap = overconfidence(rows)
        return gap.mean() / gap.std() * np.sqrt(4000)

    sharper = proba**2 / (proba**2).sum(axis=1, keepdims=True)
    assert abs(mean_in_standard_errors(proba)) < 3
    assert mean_in_standard_errors(sharper) > 6


def test_people_of_whom_the_model_is_rightly_sure_are_no_more_disadvantaged_than_others():
    rng = np.random.default_rng(0)
    n = 4000
    sure = np.arange(n) < n // 2
    p = np.where(sure, 0.98, rng.uniform(0.5, 0.8, n))
    wrong = rng.random(n) > p
    rows = Rows(np.zeros((n, 1)), ask=None, score=aps, selection=None, key=0, codes=wrong * 1)
    vars(rows)["proba"] = np.column_stack([p, 1 - p])
    covered = coverage_to_learn(rows, None, "score", 0.1, label_conditional=False)
    apart = covered[sure].mean() - covered[~sure].mean()
    assert abs(apart) < 4 * np.hypot(*(covered[part].std() for part in (sure, ~sure))) / n**0.5


def test_unknown_labels_are_the_least_covered_rows_to_learn_from():
    rows = Rows(np.zeros((3, 1)), ask=None, score=aps, selection=None, key=0, codes=np.r_[0, 1, -1])
    vars(rows)["proba"] = np.array([[0.9, 0.1], [0.9, 0.1], [1.0, 0.0]])
    covered = coverage_to_learn(rows, None, "score", 0.2, label_conditional=False)
    assert covered[0] > covered[1] > covered[2]


@pytest.mark.parametrize("label_conditional", [False, True])
@pytest.mark.parametrize("target", ["coverage", "score"])
@pytest.mark.parametrize("has_base", [False, True])
def test_labels_that_no_set_holds_are_never_covered(label_conditional, target, has_base):
    codes = np.r_[0, 1, -1, -1]
    rows = Rows(np.zeros((4, 1)), ask=None, score=lac, selection=None, key=0, codes=codes)
    vars(rows)["proba"] = np.tile([0.9, 0.1], (4, 1))
    full = SimpleNamespace(thresholds=lambda rows: np.full((len(rows), 1), np.inf))
    base = full if has_base else None
    covered = coverage_to_learn(rows, base, target, 0.1, label_conditional=label_conditional)
    assert covered[2:].tolist() == [0, 0]
    assert covered[0] > 0
    assert covered_by_split(rows, 0.1).tolist() == [True, True, False, False]  # full sets
