"""Worst slabs in an audit: the optimised search, in-sample, held-out and by chance."""

import numpy as np
import pytest

from fareg.auditing._rate import Audited
from fareg.auditing._slabs import COLUMNS, DELTAS, slab_curve
from fareg.datasets import make_metric_benchmark


def curve_of(covered_of, n=1500, seed=0, **options):
    data = make_metric_benchmark(n, random_state=seed)
    rng = np.random.default_rng(seed)
    covered = covered_of(data.group, rng)
    options = {"n_directions": 40, "n_permutations": 19, **options}
    people = Audited(data.X, covered, np.ones(n, dtype=np.int64))
    return slab_curve(people, rng=rng, **options)


def test_a_region_among_ten_features_is_seen():
    curve = curve_of(lambda group, rng: rng.random(len(group)) < np.where(group, 0.6, 0.96))
    assert list(curve.columns) == list(COLUMNS)
    quadratic = curve[curve["measure"] == "WSC+"].set_index("delta")
    assert quadratic.index.tolist() == list(DELTAS)
    assert quadratic["p_value"].max() == 1 / 20
    assert quadratic.loc[0.2, "held_out"] < 0.8
    assert (quadratic["value"] < quadratic["null_low"]).all()


def test_rows_are_consistent():
    curve = curve_of(lambda group, rng: rng.random(len(group)) < 0.9, n=400)
    assert (curve["held_out_low"] <= curve["held_out"]).all()
    assert (curve["held_out"] <= curve["held_out_high"]).all()
    assert (curve["null_low"] <= curve["null_high"]).all()
    for _, rows in curve.groupby("measure"):
        assert rows["value"].is_monotonic_increasing


def test_without_permutations_there_is_no_band():
    curve = curve_of(lambda group, rng: ~group, n=100, n_permutations=0)
    assert curve[["null_low", "null_median", "null_high", "p_value"]].isna().all(axis=None)


@pytest.mark.parametrize("n", [2, 3, 10])
def test_few_rows_have_an_answer(n):
    curve = curve_of(lambda group, rng: rng.random(len(group)) < 0.5, n=n)
    assert len(curve) == 2 * len(DELTAS)
    assert curve["value"].notna().all()
