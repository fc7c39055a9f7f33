"""Sets of one threshold for all have the size asked for; an oracle calibrates its group alone."""

import numpy as np
import pytest

from fareg.experiments._references import SplitScores, size_matched_threshold
from fareg.pvalues import conformal_quantile


@pytest.fixture
def drawn():
    rng = np.random.default_rng(0)
    return {
        "own": rng.random(200),
        "inside": rng.random(200) < 0.3,
        "scores": rng.random((50, 4)),
        "test_inside": rng.random(50) < 0.3,
    }


def oracle_sets(drawn, construction):
    split = SplitScores(drawn["own"], drawn["scores"])
    sides = drawn["inside"], drawn["test_inside"]
    return split.oracle_sets(*sides, confidence_level=0.8, construction=construction)


@pytest.mark.parametrize("mean_size", [0.5, 1.0, 2.34, 4.0])
def test_sets_at_the_matched_threshold_have_the_size_asked_for(drawn, mean_size):
    sets = drawn["scores"] <= size_matched_threshold(drawn["scores"], mean_size)
    assert sets.sum(axis=1).mean() == pytest.approx(mean_size, abs=0.5 / len(sets))


def test_a_partition_calibrates_each_side_on_itself(drawn):
    sets = oracle_sets(drawn, construction="partition")
    for side in (True, False):
        own = drawn["own"][drawn["inside"] == side]
        rows = drawn["test_inside"] == side
        threshold = conformal_quantile(own, confidence_level=0.8)
        np.testing.assert_array_equal(sets[rows], drawn["scores"][rows] <= threshold)


def test_a_union_contains_the_marginal_sets_and_those_of_the_group(drawn):
    sets = oracle_sets(drawn, construction="union")
    everyone = drawn["scores"] <= conformal_quantile(drawn["own"], confidence_level=0.8)
    of_group = oracle_sets(drawn, construction="partition") & drawn["test_inside"][:, None]
    np.testing.assert_array_equal(sets, everyone | of_group)
