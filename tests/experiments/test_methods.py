"""Rows of a comparison are what they say: identities between methods."""

from dataclasses import replace

import numpy as np
import pytest

from fareg import (
    ExhaustiveConformalClassifier,
    FaReGClassifier,
    FaregError,
    SplitConformalClassifier,
)
from fareg._threads import one_thread
from fareg.experiments._cells import MethodCell
from fareg.experiments._config import BaseConfig, Method
from fareg.experiments._methods import (
    LEVELS,
    MARGINAL,
    OUT_OF_FOLD,
    apply_method,
    comparison,
    fitted,
)
from fareg.experiments._problems import DATA, prepare, train_base_model
from fareg.experiments._store import Store

ORACLES = {
    name: Method(name, "oracle", (("construction", name),)) for name in ("union", "partition")
}


@pytest.fixture(scope="module")
def bench(tiny, tmp_path_factory):
    with one_thread():
        return prepare(tiny.tiny_problem(), Store.open(tmp_path_factory.mktemp("bench")))


def sets_of(method, bench):
    return apply_method(method, bench, lambda like: 2.5)[0]


def test_a_problem_is_drawn_alike_every_time_and_split_in_halves(tiny, bench):
    again = prepare(tiny.tiny_problem(), bench.store)
    assert len(bench.calibration.y) == 200
    assert len(bench.test.y) == 200
    assert again.test.X.equals(bench.test.X)
    assert again.training_seconds == bench.training_seconds  # remembered, not trained again


def test_stored_probabilities_are_those_of_the_trained_model(tiny, bench):
    problem = tiny.tiny_problem()
    data = DATA["xnor"].draw(problem.data, 600, problem.rng(0))
    seed = int(problem.rng(1).integers(2**31))
    with one_thread():
        parts = (data.take(np.arange(200)), data.take(np.arange(200, 400)))
        model = train_base_model(problem.base, *parts, seed)
        expected = model.predict_proba(data.X[400:])
    np.testing.assert_allclose(bench.estimator.predict_proba(bench.test.X), expected, atol=1e-12)


def test_a_class_that_training_never_saw_gets_probability_zero(tiny, tmp_path):
    problem = tiny.tiny_problem("nursery", n=40)
    bench = prepare(problem, Store.open(tmp_path))
    assert bench.estimator.predict_proba(bench.test.X).shape == (200, 4)


def test_marginal_is_the_split_conformal_classifier(bench):
    clf = SplitConformalClassifier(bench.estimator, random_state=bench.seed)
    clf.conformalize(bench.calibration.X, bench.calibration.y)
    assert (sets_of(MARGINAL, bench) == clf.predict_set(bench.test.X)).all()


def test_out_of_fold_rows_teach_so_that_every_calibration_row_calibrates(tiny, bench):
    with pytest.raises(FaregError, match="gradient boosting, got mlp"):
        bench.learning_rows()
    bench = prepare(replace(tiny.tiny_problem(), base=BaseConfig(kind="boosting")), bench.store)
    n_rows = {m: fitted(m, bench)[0].n_calibration_ for m in (LEVELS, OUT_OF_FOLD)}
    assert n_rows[OUT_OF_FOLD] == len(bench.calibration.y)
    assert n_rows[LEVELS] < len(bench.calibration.y)
    again = prepare(bench.problem, bench.store)
    told = [b.learning_rows()["proba_learn"] for b in (bench, again)]
    np.testing.assert_array_equal(*told)  # remembered
    np.testing.assert_allclose(told[0].sum(axis=1), 1.0)


def test_the_oracle_partition_calibrates_the_true_group_and_the_rest(bench):
    hidden = ExhaustiveConformalClassifier(
        bench.estimator,
        sensitive_features=lambda X: (X["Color"] == "Red") == (X["Gender"] == "Female"),
        random_state=bench.seed,
    )
    hidden.conformalize(bench.calibration.X, bench.calibration.y)
    assert (sets_of(ORACLES["partition"], bench) == hidden.predict_set(bench.test.X)).all()


def test_the_oracle_union_adds_the_group_to_marginal(bench):
    union, partition = (sets_of(oracle, bench) for oracle in ORACLES.values())
    marginal, group = sets_of(MARGINAL, bench), bench.test.group
    assert (union[~group] == marginal[~group]).all()
    assert (union[group] == (marginal | partition)[group]).all()


@pytest.mark.parametrize("size", [0.5, 2.5, 5.25])
def test_a_size_matched_marginal_has_that_size(size, bench):
    method = Method("matched", "matched", (("like", LEVELS),))
    sets, facts = apply_method(method, bench, lambda like: size)
    assert sets.sum(axis=1).mean() == size
    assert 0 <= facts["level"] <= 1


def test_marginal_matched_to_marginal_is_marginal(bench):
    method = Method("matched", "matched", (("like", MARGINAL),))
    marginal = sets_of(MARGINAL, bench)
    sets, _ = apply_method(method, bench, lambda like: marginal.sum(axis=1).mean())
    assert (sets == marginal).all()


@pytest.mark.parametrize("n_draws", [1, 7])
def test_fewer_draws_are_the_first_of_many(n_draws, bench):
    parameters = (("max_iter", 10), ("n_draws", n_draws))
    clf = FaReGClassifier.paper(
        bench.estimator,
        sensitive_features=bench.sensitive,
        random_state=bench.seed,
        **dict(parameters),
    )
    with one_thread():
        clf.conformalize(bench.calibration.X, bench.calibration.y)
        sets = sets_of(Method("T", "draws", parameters), bench)
    assert (sets == clf.predict_set(bench.test.X)).all()


def test_a_matched_row_needs_no_other_row_to_be_there(tiny, bench, tmp_path):
    matched = Method("matched", "matched", (("like", LEVELS),))
    cell = MethodCell(bench.problem, matched, tiny.METRICS)
    with one_thread():
        row = cell.result(bench).iloc[0]
        like = MethodCell(bench.problem, LEVELS, tiny.METRICS).result(bench).iloc[0]
    assert row["size"] == like["size"]


def test_selections_are_shares_and_both_is_at_most_either(bench):
    for method in (LEVELS, Method("AFCP2", "afcp", (("n_select", 2),))):
        _, facts = apply_method(method, bench, lambda like: 2.0)
        told = {"selects_first", "selects_second", "selects_both"}
        assert set(facts) == told | {"conformalize_seconds", "predict_seconds"}
        assert 0 <= facts["selects_both"] <= min(facts["selects_first"], facts["selects_second"])


def test_the_comparison_names_every_method_once():
    names = [method.name for method in comparison()]
    assert len(set(names)) == len(names) == 15
