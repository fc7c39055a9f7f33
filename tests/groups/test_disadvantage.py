"""A disadvantage is learned from any table, honestly: no row is predicted by what it taught."""

import json
import time

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

from fareg import FaregError
from fareg._levels import Levels
from fareg.groups import MEMBERS, GroupLearner
from fareg.groups import _boosting as boosting
from fareg.groups import _learner as learner_module
from fareg.groups._boosting import _boost, learn_boosting, level_means
from fareg.groups._cells import PRIOR_ROWS, _nested_gain, learn_cells
from fareg.groups._disadvantage import (
    STRONG,
    WEAK,
    Signal,
    cross_fitted,
    learn_quickly,
    measure_signal,
    stack_weights,
)
from fareg.groups._folds import N_FOLDS, Folds
from fareg.groups._kernel import PENALTIES, Reading, _ridge, kernel, learn_kernel
from fareg.persistence._codec import Reader, Writer


def people(n, seed=0, gap=0.5):
    """Draw a table with an interaction, a smooth slope and noise columns; return who is hard."""
    rng = np.random.default_rng(seed)
    columns = pd.DataFrame(
        {
            "Color": rng.choice(["Red", "Blue"], n),
            "Gender": rng.choice(["Female", "Male"], n),
            "Age": rng.integers(18, 90, n).astype(float),
            "Region": rng.choice(list("abcde"), n),
        }
    ).astype({"Color": object, "Gender": object, "Region": object})
    hard = ((columns["Color"] == "Red") == (columns["Gender"] == "Female")).to_numpy()
    covered = np.clip(rng.random(n) - gap * hard + gap / 2, 0, 1)
    return columns, covered, hard


def stacked(**parameters):
    return GroupLearner(members=MEMBERS, numbers="piecewise", **parameters)


@pytest.fixture(scope="module")
def learned():
    columns, covered, hard = people(800)
    return stacked(max_iter=40).fit(columns, covered), columns, covered, hard


def test_those_worse_off_have_more_of_it(learned):
    learner, _, covered, hard = learned
    fresh, _, fresh_hard = people(2000, seed=1)
    b = learner.disadvantage(fresh)
    assert b[fresh_hard].min() > b[~fresh_hard].max()
    assert set(learner.features_[:2]) == {"Color", "Gender"}
    assert learner.found_
    assert learner.signal_.gain > 0.1
    # it is an expected shortfall, not just an order
    assert b[fresh_hard].mean() == pytest.approx(1 - covered[hard].mean(), abs=0.05)


def test_smooth_regions_of_numbers_are_learned():
    rng = np.random.default_rng(0)
    columns = pd.DataFrame(rng.uniform(-1, 1, (1500, 3)), columns=["a", "b", "c"])
    hard = np.hypot(columns["a"], columns["b"]) < 0.6
    covered = np.clip(rng.random(1500) - 0.5 * hard + 0.25, 0, 1)
    learner = stacked(max_iter=60).fit(columns, covered)
    fresh = pd.DataFrame(rng.uniform(-1, 1, (2000, 3)), columns=["a", "b", "c"])
    b = learner.disadvantage(fresh)
    inside = np.hypot(fresh["a"], fresh["b"]).to_numpy() < 0.6
    pairs = b[inside][:, None] > b[~inside]
    assert pairs.mean() > 0.9


def test_a_row_never_depends_on_the_rows_beside_it(learned):
    learner, columns, _, _ = learned
    together = learner.disadvantage(columns)
    alone = np.concatenate([learner.disadvantage(columns.iloc[[i]]) for i in range(10)])
    np.testing.assert_allclose(alone, together[:10], rtol=1e-12)
    np.testing.assert_allclose(learner.disadvantage(columns.iloc[::-1])[::-1], together, rtol=1e-12)
    assert learner.disadvantage(columns.iloc[:0]).shape == (0,)


def test_same_seed_same_answer():
    columns, covered, _ = people(300)
    first, again = (stacked(max_iter=10, random_state=3).fit(columns, covered) for _ in "ab")
    np.testing.assert_array_equal(first.disadvantage(columns), again.disadvantage(columns))
    np.testing.assert_array_equal(first.out_of_fold_, again.out_of_fold_)


def boosted(columns, target, folds):
    by_fold, model = learn_boosting(columns, target, folds.trains(), np.random.default_rng(0))
    return folds.own(by_fold), model


MEMBERS_ALONE = {
    "cells": lambda columns, target, folds: learn_cells(columns, target, folds),
    "boosting": lambda columns, target, folds: boosted(columns, target, folds),
    "kernel": lambda columns, target, folds: learn_kernel(
        columns, target, folds, (("Age", "Color"),) * N_FOLDS, np.random.default_rng(0)
    ),
}


@pytest.mark.parametrize("member", MEMBERS_ALONE)
def test_no_row_is_predicted_by_what_it_taught(member):
    columns, covered, _ = people(300)
    rng = np.random.default_rng(0)
    folds = Folds.draw(300, np.arange(300) // 2, rng)
    honest, _ = MEMBERS_ALONE[member](columns, 1 - covered, folds)
    held = np.flatnonzero(folds.fold == 2)
    shuffled = covered.copy()
    shuffled[held] = covered[rng.permutation(held)]  # their mean stays what it was
    again, _ = MEMBERS_ALONE[member](columns, 1 - shuffled, folds)
    np.testing.assert_allclose(again[held], honest[held], atol=1e-6)
    assert not np.allclose(again[folds.fold == 1], honest[folds.fold == 1], atol=1e-6)


def test_arrays_of_trees_answer_as_scikit_learn_does(monkeypatch):
    columns, covered, _ = people(300)
    columns.loc[::7, "Age"] = np.nan
    columns.loc[::5, "Region"] = None
    folds = Folds.draw(300, None, np.random.default_rng(0))
    sums = []

    def boost(*args):
        total, trees = _boost(*args)
        sums.append(total)  # by scikit-learn's own prediction of every tree
        return total, trees

    def same_for_all(codes, *args):
        means, _ = level_means(codes, *args)
        return means, means[codes]

    monkeypatch.setattr("fareg.groups._boosting._boost", boost)
    monkeypatch.setattr("fareg.groups._boosting.level_means", same_for_all)
    _, model = learn_boosting(columns, covered, folds.trains(), np.random.default_rng(0))
    expected = covered.mean() + np.mean(sums, axis=0)
    np.testing.assert_allclose(model.predict(columns), expected)


def test_rows_of_a_cluster_are_held_out_together():
    ids = np.array(["p1", "p2", None, "p3", "p1", None] * 20, dtype=object)
    folds = Folds.draw(len(ids), ids, np.random.default_rng(0))
    for person in ("p1", "p2", "p3"):
        assert len(set(folds.fold[ids == person])) == 1
    part = folds.part(0.5, np.random.default_rng(0))
    assert all(len(set(part[ids == person])) == 1 for person in ("p1", "p2", "p3"))


def test_repeated_rows_are_no_evidence():
    """Every row of a noisy table ten times: its copies predict it unless they are held out."""
    columns, _, _ = people(60)
    covered = np.random.default_rng(0).random(60)
    many = columns.loc[np.repeat(columns.index, 10)].reset_index(drop=True)
    many["id"] = np.repeat(np.arange(60.0), 10)  # tells the copies apart perfectly
    learner = GroupLearner(members=("cells", "boosting"), numbers="piecewise")
    naive = learner.fit(many, np.repeat(covered, 10)).signal_
    assert naive.p_value < 1e-6
    told = learner.fit(many, np.repeat(covered, 10), clusters=np.repeat(np.arange(60), 10)).signal_
    assert told.p_value > 0.05


@pytest.mark.parametrize("n_columns", [4, 12, 40])
def test_the_p_value_of_noise_holds_its_level(n_columns):
    """Models of different folds learn from each other's rows, so their products are no sum of
    independent terms: taken as one, p <= 0.05 in 12% of all tables of noise."""
    n, n_tables, p_values = 200, 400, []
    for seed in range(n_tables):
        rng = np.random.default_rng([n_columns, seed])
        x, target, folds = rng.normal(size=(n, n_columns)), rng.random(n), Folds.draw(n, None, rng)
        predicted = np.empty(n)
        for k in range(N_FOLDS):
            own, rest = folds.fold == k, folds.fold != k
            mean = target[rest].mean()
            ridge = x[rest].T @ x[rest] + 20 * np.eye(n_columns)
            beta = np.linalg.solve(ridge, x[rest].T @ (target[rest] - mean))
            predicted[own] = mean + x[own] @ beta
        p_values.append(measure_signal(predicted, target, folds).p_value)
    for level in (STRONG, WEAK):
        assert np.sum(np.array(p_values) <= level) <= binom.ppf(0.999, n_tables, level)


@pytest.mark.parametrize("n_columns", [4, 12])
def test_evidence_for_noise_is_as_rare_as_its_p_value_says(n_columns):
    n_tables, n_all, n_any = 30, 0, 0
    for seed in range(n_tables):
        rng = np.random.default_rng(seed)
        columns = pd.DataFrame(rng.normal(size=(200, n_columns)).round(1)).rename(columns=str)
        learner = GroupLearner(members=("cells", "boosting"), random_state=seed)
        n_levels = learner.fit(columns, rng.random(200)).signal_.n_levels(1000, 20)
        n_all, n_any = n_all + (n_levels == 20), n_any + (n_levels > 1)
    assert n_all <= binom.ppf(0.999, n_tables, STRONG)
    assert n_any <= binom.ppf(0.999, n_tables, WEAK)


def test_a_weak_order_deserves_levels_although_a_constant_predicts_better():
    rng = np.random.default_rng(0)
    target, folds = rng.random(1000), Folds.draw(1000, None, rng)
    signal = measure_signal(0.3 * target + rng.normal(0.35, 0.3, 1000), target, folds)
    assert signal.gain < 0
    assert signal.n_levels(1000, 20) == 20


def test_folds_that_differ_in_their_mean_are_no_evidence():
    """The others' mean, as a prediction, falls where a fold's own mean rises."""
    rng = np.random.default_rng(0)
    folds = Folds.draw(1000, None, rng)
    target = rng.random(1000) + folds.fold
    others = np.array([target[folds.fold != k].mean() for k in range(N_FOLDS)])
    noise = rng.normal(0, 1e-3, 1000)
    p_values = [
        measure_signal(s * others[folds.fold] + noise, target, folds).p_value for s in (1, -1)
    ]
    assert p_values[0] == pytest.approx(p_values[1])


def test_levels_follow_evidence():
    strong, none = Signal(0.1, 1e-9), Signal(-0.01, 0.8)
    assert [strong.n_levels(n, 20) for n in (0, 300, 10_000)] == [20, 20, 20]
    assert strong.n_levels(10_000, 3) == 3
    assert none.n_levels(10_000, 20) == 1
    assert [Signal(0.01, 0.1).n_levels(n, 20) for n in (200, 1000, 10_000)] == [20, 5, 1]
    assert [Signal(0.01, 0.3).n_levels(n, 20) for n in (200, 1000, 10_000)] == [5, 1, 1]
    assert [Signal(0.01, 0.5).n_levels(n, 20) for n in (0, 200)] == [1, 1]


def test_weights_are_the_best_of_all_allowed():
    rng = np.random.default_rng(0)
    target = rng.random(400)
    table = np.column_stack([target + rng.normal(0, 0.5, 400), rng.random(400), 0.8 * target])
    weights = stack_weights(table, target)
    assert (weights >= 0).all()
    assert weights.sum() <= 1 + 1e-6

    def error(w):
        return ((target - target.mean() - (table - table.mean(0)) @ w) ** 2).sum()

    others = rng.dirichlet(np.ones(4), 5000)[:, :3]
    assert error(weights) <= min(map(error, others)) + 1e-6


def test_a_useless_stack_is_the_mean():
    rng = np.random.default_rng(0)
    target, folds = rng.random(500), Folds.draw(500, None, rng)
    honest = cross_fitted(-target[:, None], target, folds)  # it may only be subtracted
    np.testing.assert_allclose(honest, target.mean(), atol=0.02)
    assert measure_signal(honest, target, folds).p_value > 0.05


def test_nested_gain_is_its_definition():
    rng = np.random.default_rng(0)
    key, targets = rng.integers(0, 6, 120), rng.normal(size=(N_FOLDS, 120))
    fold = rng.permutation(120) % N_FOLDS
    expected = np.zeros(N_FOLDS)
    for k in range(N_FOLDS):
        for i in np.flatnonzero(fold != k):
            near = (key == key[i]) & (fold != k) & (fold != fold[i])
            mean = targets[k, near].sum() / (near.sum() + PRIOR_ROWS)
            expected[k] += targets[k, i] ** 2 - (targets[k, i] - mean) ** 2
    np.testing.assert_allclose(_nested_gain(key, targets, fold), expected)


def test_cells_of_one_feature_are_shrunk_means():
    columns, covered, _ = people(400)
    one = columns[["Region"]]
    folds = Folds.draw(400, None, np.random.default_rng(0))
    _, model = learn_cells(one, covered, folds)
    codes, mean = Levels.learn(one["Region"]).codes(one["Region"]), covered.mean()
    expected = np.zeros(400)
    for trains in folds.trains():
        for code in range(5):
            near = (codes == code) & trains
            shrunk = (covered[near] - mean).sum() / (near.sum() + PRIOR_ROWS)
            expected[codes == code] += (mean + shrunk) / N_FOLDS
    np.testing.assert_allclose(model.predict(one), expected)
    np.testing.assert_allclose(model.predict(one.assign(Region="never seen")), mean)


def test_few_kinds_of_rows_have_the_exact_kernel_regression():
    """If every kind of row is a centre, the regression is ``k(x, X) (K + c I)^-1 y``."""
    columns, covered, _ = people(300)
    reads = ("Color", "Region")
    folds = Folds.draw(300, None, np.random.default_rng(0))
    _, model = learn_kernel(columns, covered, folds, (reads,) * N_FOLDS, np.random.default_rng(0))
    readings = [Reading.learn(columns[name]) for name in reads]
    codes = np.column_stack([reading.codes(columns) for reading in readings])
    K, mean, expected = kernel(readings, codes, codes, 1.0), covered.mean(), np.zeros(300)
    for trains in folds.trains():
        own, y = K[np.ix_(trains, trains)], covered[trains] - mean

        def error(c, own=own, y=y):
            smoother = own @ np.linalg.inv(own + c * np.eye(len(y)))
            rest = y - smoother @ y
            return (rest @ rest) / (1 - np.trace(smoother) / (len(y) + 1)) ** 2

        best = min(PENALTIES, key=error)
        alpha = np.linalg.solve(own + best * np.eye(len(y)), y)
        expected += (mean + K[:, trains] @ alpha) / N_FOLDS
    np.testing.assert_allclose(model.predict(columns), expected, atol=1e-4)


def test_ridge_is_the_solution_of_its_equations():
    rng = np.random.default_rng(0)
    Z, y = rng.normal(size=(50, 4)), rng.normal(size=50)
    _, weights = _ridge(Z, y)
    close = [
        np.allclose(weights, np.linalg.solve(Z.T @ Z + c * np.eye(4), Z.T @ y)) for c in PENALTIES
    ]
    assert sum(close) == 1


def test_numbers_are_read_by_rank():
    column = pd.Series(np.arange(1000.0), name="a")
    reading = Reading.learn(column)
    codes = reading.codes(pd.DataFrame({"a": column}))
    stretched = Reading.learn(np.exp(column / 100).rename("a"))
    again = stretched.codes(pd.DataFrame({"a": np.exp(column / 100)}))
    np.testing.assert_array_equal(again, codes)
    assert (np.diff(codes) >= 0).all()
    odd = pd.DataFrame({"a": [np.nan, np.inf, -np.inf]})
    assert reading.codes(odd).tolist() == [-1, codes.max(), codes.min()]


def test_quick_learning_ranks_those_worse_off_first():
    columns, covered, hard = people(1500)
    parts = np.arange(1500) < np.array([[500], [1000]])
    for part, b in zip(
        parts, learn_quickly(columns, 1 - covered, parts, np.random.default_rng(0)), strict=True
    ):
        b, own = b[~part], hard[~part]
        assert (b[own][:, None] > b[~own]).mean() > 0.95


def test_quick_learning_reads_the_target_of_its_part_only():
    columns, covered, _ = people(600)
    parts = np.arange(600)[None] < 300
    first, second = (
        learn_quickly(columns, target, parts, np.random.default_rng(0))
        for target in (1 - covered, np.where(parts[0], 1 - covered, 0.0))
    )
    np.testing.assert_array_equal(np.argsort(first[0]), np.argsort(second[0]))


def test_two_groups_of_different_features_are_both_found():
    rng = np.random.default_rng(0)
    names = list("abcdef")
    columns = pd.DataFrame({name: rng.choice(["0", "1"], 2000) for name in names}).astype(object)
    first = (columns["a"] == "1") & (columns["b"] == "1")
    second = (columns["c"] == "1") & (columns["d"] == "1")
    covered = np.clip(rng.random(2000) - 0.6 * (first | second) + 0.3, 0, 1)
    learner = GroupLearner(members=("cells",)).fit(columns, covered)
    assert set("abcd") <= set(learner.features_)
    b = learner.disadvantage(columns)
    assert b[first | second].min() > b[~(first | second)].max()


def test_hostile_columns_give_numbers():
    rng = np.random.default_rng(0)
    n = 400
    columns = pd.DataFrame(
        {
            "constant": np.zeros(n),
            "missing": np.full(n, np.nan),
            "infinite": np.where(rng.random(n) < 0.1, np.inf, rng.normal(size=n)),
            "holes": np.where(rng.random(n) < 0.5, np.nan, rng.normal(size=n)),
            "many": pd.Series([f"c{j}" for j in rng.integers(0, 500, n)], dtype=object),
            "huge": rng.normal(size=n) * 1e300,
            "empty": pd.Series([None] * n, dtype=object),
        }
    )
    learner = stacked(max_iter=10).fit(columns, rng.random(n) * (columns["holes"] > 0))
    strange = columns.assign(many="never seen", holes=-np.inf, missing=5.0, empty="now full")
    for table in (columns, strange, strange.assign(many=None, infinite=np.nan)):
        b = learner.disadvantage(table)
        assert ((b >= 0) & (b <= 1)).all()


@pytest.mark.parametrize("covered", [np.ones(200), np.zeros(200)])
def test_equal_coverage_has_no_signal(covered):
    columns, _, _ = people(200)
    learner = stacked().fit(columns, covered)
    assert learner.signal_.n_levels(1000, 20) == 1
    np.testing.assert_allclose(learner.disadvantage(columns), 1 - covered)
    np.testing.assert_allclose(learner.out_of_fold_, 1 - covered)
    assert not learner.found_


@pytest.mark.parametrize("n", [0, 1, 12])
def test_few_rows_have_no_signal(n):
    columns, covered, _ = people(max(n, 1))
    learner = stacked().fit(columns.iloc[:n], covered[:n])
    assert learner.signal_.n_levels(1000, 20) == 1
    assert learner.out_of_fold_.shape == (n,)
    assert np.isfinite(learner.disadvantage(columns)).all()


@pytest.mark.parametrize("n_clusters", [1, 4])
def test_fewer_clusters_than_folds_have_no_signal(n_clusters):
    columns, covered, _ = people(300)
    learner = stacked(max_iter=5).fit(columns, covered, np.arange(300) % n_clusters)
    assert not learner.found_
    np.testing.assert_allclose(learner.disadvantage(columns), 1 - covered.mean())
    np.testing.assert_allclose(learner.out_of_fold_, 1 - covered.mean())


@pytest.mark.parametrize("sizes", [[60] * 5, [296, 1, 1, 1, 1], [100, 100, 98, 1, 1]])
def test_a_cluster_for_each_fold_is_enough(sizes):
    columns, covered, _ = people(300)
    learner = stacked(max_iter=5).fit(columns, covered, np.repeat(np.arange(5), sizes))
    for answer in (learner.disadvantage(columns), learner.out_of_fold_):
        assert ((answer >= 0) & (answer <= 1)).all()


def test_a_part_of_the_clusters_has_some_of_each_fold():
    ids = np.repeat(np.arange(20), 7)
    folds = Folds.draw(len(ids), ids, np.random.default_rng(0))
    for seed in range(20):
        part = folds.part(0.05, np.random.default_rng(seed))
        assert folds.take(part).is_complete
        assert len(np.unique(ids[part])) in (N_FOLDS, N_FOLDS + 1)
        assert set(np.bincount(ids[part])) <= {0, 7}


def test_texts_of_too_many_levels_teach_nothing_and_stop_nothing(monkeypatch):
    monkeypatch.setattr("fareg.groups._cells.MAX_CELLS", 100)
    rng = np.random.default_rng(0)
    columns = pd.DataFrame({"id": [f"p{i}" for i in range(400)], "other": [*"abcd"] * 100})
    columns["other"] += columns["id"]
    covered = rng.random(400)
    learner = stacked(max_iter=5).fit(columns.astype(object), covered)
    assert not learner.found_
    np.testing.assert_allclose(learner.disadvantage(columns), 1 - covered.mean())
    beside = columns.astype(object).assign(number=covered)  # a number tells although they do not
    assert stacked(max_iter=5).fit(beside, covered).found_


def test_rows_beyond_the_limit_are_predicted_too(monkeypatch):
    monkeypatch.setattr(learner_module, "MAX_LEARNING_ROWS", 500)
    columns, covered, hard = people(1500)
    learner = GroupLearner(members=("cells", "boosting")).fit(columns, covered)
    assert learner.out_of_fold_.shape == (1500,)
    assert learner.out_of_fold_[hard].mean() > learner.out_of_fold_[~hard].mean() + 0.2


def test_a_stored_disadvantage_answers_alike(learned):
    learner, columns, _, _ = learned
    writer = Writer()
    written = json.loads(json.dumps(writer.write(learner, "learner")))
    assert not writer.foreign
    again = Reader(writer.arrays, 10**6).read(written)
    np.testing.assert_array_equal(again.disadvantage(columns), learner.disadvantage(columns))
    np.testing.assert_array_equal(again.membership(columns), learner.membership(columns))
    assert again.signal_ == learner.signal_


def test_a_million_people_of_few_kinds_take_a_moment(learned):
    learner, columns, _, _ = learned
    many = pd.DataFrame(
        {name: column.to_numpy()[np.arange(200_000) % 40] for name, column in columns.items()}
    )
    start = time.perf_counter()
    b = learner.disadvantage(many)
    assert time.perf_counter() - start < 5  # about 0.1 s alone on a core
    np.testing.assert_allclose(b[:40], learner.disadvantage(columns.iloc[:40]))


@pytest.mark.parametrize(
    ("parameter", "value"), [("members", ("forest",)), ("numbers", "raw"), ("members", "cells")]
)
def test_bad_parameters_are_named(parameter, value):
    columns, covered, _ = people(100)
    with pytest.raises(FaregError, match=parameter):
        GroupLearner(**{parameter: value}).fit(columns, covered)


@pytest.mark.parametrize("numbers", ["standard", "piecewise", "codes"])
def test_the_network_alone_reads_numbers_in_three_ways(numbers):
    columns, covered, hard = people(600)
    learner = GroupLearner(numbers=numbers, select_features=False, max_iter=60)
    q = learner.fit(columns, covered).membership(columns)
    assert q[hard].mean() > q[~hard].mean()
    assert set(learner.input_features()) == set(columns)
    np.testing.assert_array_equal(learner.disadvantage(columns), q)
    if numbers == "codes":
        assert len(learner.input_features()) == columns.shape[1]


def test_level_means_are_those_of_the_definition_and_rare_levels_tell_no_row_its_own_target():
    rng = np.random.default_rng(0)
    n = 120
    codes = np.column_stack([rng.integers(0, 2, n), rng.integers(2, 20, n)])
    target = rng.random(n)
    means, told = level_means(codes, target, 21, np.random.default_rng(1))
    part = np.random.default_rng(1).permutation(n) % boosting.N_PARTS
    prior = boosting.PRIOR_ROWS

    def shrunk(alike, rows):
        return (target[rows & alike].sum() + prior * target[rows].mean()) / (
            (rows & alike).sum() + prior
        )

    everyone = np.ones(n, dtype=bool)
    for level in range(21):
        assert means[level] == pytest.approx(shrunk((codes == level).any(axis=1), everyone))
    for i, j in np.ndindex(codes.shape):
        alike = codes[:, j] == codes[i, j]
        is_rare = alike.sum() < boosting.MANY_ROWS
        assert is_rare == (j == 1)
        assert told[i, j] == pytest.approx(shrunk(alike, part != part[i] if is_rare else everyone))
        other_target = target.copy()
        other_target[i] += 5
        again = level_means(codes, other_target, 21, np.random.default_rng(1))[1]
        assert (abs(again[i, j] - told[i, j]) < 1e-12) == is_rare


def test_a_text_of_hundreds_of_levels_does_not_hide_a_group_of_numbers():
    rng = np.random.default_rng(0)
    n = 1000
    columns = pd.DataFrame({"zip": rng.integers(0, 300, n).astype(str), "age": rng.random(n)})
    columns["zip"] = columns["zip"].astype(object)
    hard = columns["age"].to_numpy() > 0.8
    target = rng.random(n) * 0.7 + 0.3 * hard
    halves = np.array([rng.permutation(n) < n // 2 for _ in range(4)])
    for b in learn_quickly(columns, target, halves, rng):
        assert (b[hard][:, None] > b[~hard]).mean() > 0.85


def test_a_group_at_the_end_of_a_long_sorted_table_is_learned():
    """More rows than a search looks at, in the order of the feature that tells the group."""
    rng = np.random.default_rng(0)
    n = 30_000
    columns = pd.DataFrame({"state": np.sort(rng.integers(0, 60, n)), "x": rng.normal(size=n)})
    columns = columns.assign(state=columns["state"].astype(str)).astype({"state": object})
    wronged = columns["state"].isin(["58", "59"]).to_numpy()
    assert not wronged[:20_000].any()
    covered = (rng.random(n) < np.where(wronged, 0.5, 0.95)).astype(float)
    learner = GroupLearner(members=("cells", "kernel")).fit(columns, covered)
    b = learner.disadvantage(columns)
    assert b[wronged].min() > b[~wronged].max()
