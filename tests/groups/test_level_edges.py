"""How a learned disadvantage is cut into levels, and what the levels say."""

import numpy as np
import pandas as pd
import pytest

from fareg.groups import Disadvantage, DisadvantageLevels, Signal, learn_disadvantage
from fareg.groups._disadvantage import level_edges

CLEAR, NONE = Signal(0.5, 1e-20), Signal(0.0, 1.0)


def ages(n, seed=0):
    rng = np.random.default_rng(seed)
    people = pd.DataFrame({"age": rng.integers(18, 90, n).astype(float)})
    return people, 0.4 * rng.random(n) + (people["age"].to_numpy() - 18) / 120


@pytest.mark.parametrize(
    ("disadvantage", "n", "finer", "edges"),
    [
        (np.linspace(0, 1, 101), 1000, False, [0.25, 0.5, 0.75]),
        (np.linspace(0, 1, 101), 70, False, [0.5]),
        (np.repeat([0.1, 0.2, 0.8], [50, 32, 18]), 1000, False, [0.1, 0.2]),
        (np.linspace(0, 1, 1001), 1000, True, [0.25, 0.5, 0.75, 0.875, 0.938, 0.969]),
        # a quarter of the rows, nearly, stands out: the third edge lies in the gap below it
        (np.r_[np.linspace(0, 0.4, 760), np.full(240, 0.6)], 10_000, False, [0.131, 0.263, 0.4]),
    ],
)
def test_edges_divide_rows_evenly_and_lie_in_gaps(disadvantage, n, finer, edges):
    assert level_edges(disadvantage, 4, n, finer=finer).round(3).tolist() == edges


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


@pytest.mark.parametrize("share", [0.01, 0.016, 0.02])
def test_one_in_a_hundred_who_stand_out_share_no_level_with_others(share):
    rng = np.random.default_rng(0)
    n, n_out = 10_000, int(10_000 * share)
    disadvantage = np.r_[rng.uniform(0, 0.4, n - n_out), rng.uniform(0.6, 0.7, n_out)]
    edges = level_edges(disadvantage, 20, n, finer=True)
    assert ((edges >= disadvantage[: n - n_out].max()) & (edges < 0.6)).sum() == 1


@pytest.mark.parametrize("n_calibration", [70, 1000, 20_000])
@pytest.mark.parametrize("n_values", [2, 7, 3000])
def test_every_level_keeps_its_rows_however_many_ties_there_are(n_values, n_calibration):
    rng = np.random.default_rng(n_values)
    disadvantage = rng.integers(0, n_values, 3000) / n_values
    edges = level_edges(disadvantage, 20, n_calibration, finer=True)
    assert (np.diff(edges) > 0).all()
    levels = np.searchsorted(edges, disadvantage)
    shares = np.bincount(levels, minlength=len(edges) + 1) / 3000
    assert (shares * n_calibration >= 30 - 1e-9).all() or not len(edges)


def test_levels_and_ranks_rise_with_disadvantage():
    people, target = ages(2000)
    fitted = learn_disadvantage(people, target, seed=0)
    levels = DisadvantageLevels.cut(fitted, people, n_levels=10, n_calibration=2000)
    fresh, _ = ages(500, seed=1)
    b = fitted.predict(fresh)
    order = np.argsort(b, kind="stable")
    assert (np.diff(levels.levels(fresh)[order]) >= 0).all()
    assert (np.diff(levels.ranks(fresh)[order]) >= 0).all()
    assert levels.n_levels > 10  # finer at the top
    assert levels.levels(fresh).max() < levels.n_levels
    share = (np.sort(fitted.predict(people))[:, None] <= b[:5]).mean(axis=0)
    np.testing.assert_allclose(levels.ranks(fresh)[:5], share, atol=0.002)


def test_only_all_levels_are_finer_at_the_top():
    people, target = ages(10_000)
    fitted = learn_disadvantage(people, target, seed=0)

    def n_levels(p_value):
        weaker = Disadvantage(**{**vars(fitted), "signal": Signal(0.1, p_value)})
        cut = DisadvantageLevels.cut(weaker, people, n_levels=20, n_calibration=10_000)
        return cut.n_levels

    assert n_levels(1e-9) > 20
    assert n_levels(0.04) == 5
    assert n_levels(0.4) == 1


def test_parts_that_contradict_each_other_are_refused():
    people, target = ages(300)
    fitted = learn_disadvantage(people, target, seed=0)
    levels = DisadvantageLevels.cut(fitted, people, n_levels=20, n_calibration=1000)
    levels.check(people)
    wrong = [
        {"edges": levels.edges[::-1]},
        {"edges": levels.edges[None]},
        {"grid": levels.grid[::-1]},
        {"grid": np.empty(0)},
        *(
            {"disadvantage": Disadvantage(**{**vars(fitted), **change})}
            for change in (
                {"constant": np.nan},
                {"weights": ()},
                {"features": ("height",)},
                {"columns": ("height",)},
                {"readings": ()},
            )
        ),
    ]
    for change in wrong:
        with pytest.raises(ValueError, match=r"contradict|argument"):
            DisadvantageLevels(**{**vars(levels), **change}).check(people)
