"""Methods of a comparison do what they say: identities between methods, one training for all."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import log_loss

from fareg import ExhaustiveConformalClassifier, FaReGClassifier, SplitConformalClassifier
from fareg._threads import one_thread
from fareg.datasets import make_synthetic
from fareg.experiments._bench import TRAIN, BaseModel, Store, train_network
from fareg.experiments._methods import (
    LEVELS,
    MARGINAL,
    OUT_OF_FOLD,
    Method,
    comparison,
    fitted,
    size_matched_sets,
)
from fareg.experiments._methods import sets_of as answered
from fareg.experiments._problems import PaperProblem, numbered

ORACLES = {
    name: Method(name, "oracle", (("construction", name),)) for name in ("union", "partition")
}
CONFIG = BaseModel(hidden=(16, 8), learning_rate=0.01, max_epochs=30, batch_size=50)


@pytest.fixture(scope="module")
def bench(tiny, tmp_path_factory):
    with one_thread():
        return tiny.tiny_problem().prepare(Store.open(tmp_path_factory.mktemp("bench")))


def sets_of(method, bench):
    return answered(method, bench, "aps")[0]


def rows(bench, part):
    numbers = getattr(bench, part)
    return bench.X.iloc[numbers], bench.y[numbers]


def test_a_problem_is_drawn_alike_every_time_and_its_model_is_trained_once(tiny, bench):
    again = tiny.tiny_problem().prepare(bench.store)
    assert [len(getattr(bench, part)) for part in ("train", "calibration", "test")] == [200] * 3
    assert again.X.equals(bench.X)
    assert again.estimator is not bench.estimator is not None
    assert again.seconds["training"] == bench.seconds["training"] > 0  # remembered, not trained
    seed = int(bench.problem.rng(TRAIN).integers(2**31))
    with one_thread():
        expected = train_network(tiny.BASE, *rows(bench, "train"), seed).predict_proba(bench.X)
    found = bench.estimator.predict_proba(bench.X)
    np.testing.assert_allclose(found, expected, atol=1e-6)  # stored in single precision


def test_codes_number_the_same_rows(tiny, tmp_path):
    bench = tiny.tiny_problem("eight").prepare(Store(tmp_path))
    X = numbered(bench.X, "authors")
    ages = X["Age Group"].groupby(bench.X["Age Group"]).first().to_dict()
    assert ages == {"Child": 6.0, "Youth": 7.0, "Middle": 8.0, "Elder": 9.0}
    assert sorted(X["Region"].unique()) == [1, 2, 3, 4, 5]
    coded = replace(bench.problem, codes="ordered").prepare(Store(tmp_path))
    assert (coded.y == bench.y).all()
    assert (coded.X["Age Group"] == X["Age Group"] - 6).all()


def test_the_cut_leaves_few_of_one_level(tiny, tmp_path):
    bench = tiny.tiny_problem("cut-nursery").prepare(Store(tmp_path))
    inside = bench.X["parents"][bench.group]
    assert (inside == "pretentious").sum() < 0.5 * (inside == "usual").sum()


def halves(n=300):
    data = make_synthetic(2 * n, random_state=0)
    return data.take(np.arange(n)), data.take(np.arange(n, 2 * n))


def test_the_epoch_of_lowest_loss_is_kept_and_unknown_classes_do_not_count():
    train, stop = halves()

    def loss(config):
        model = train_network(config, train.X, train.y, 0, stop=(stop.X, stop.y))
        return log_loss(stop.y, model.predict_proba(stop.X), labels=range(6))

    losses = [loss(replace(CONFIG, max_epochs=epochs)) for epochs in (1, 5, 30, 60)]
    assert losses == sorted(losses, reverse=True)
    assert losses[0] > losses[2]
    few = train.take(np.flatnonzero(train.y != 5))
    model = train_network(CONFIG, few.X, few.y, 0, stop=(stop.X, stop.y))
    assert model[0].transform(stop.X).shape == stop.X.shape  # every feature is one raw number
    assert model.classes_.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("stopped_on", "sees"), [("training", False), ("calibration", True)])
def test_only_the_published_protocol_looks_at_calibration_labels(stopped_on, sees, tmp_path):
    problem = PaperProblem("xnor", 300, 0, replace(CONFIG, stopped_on=stopped_on), 100)
    bench = problem.prepare(Store(tmp_path / "one"))
    other = problem.prepare(Store(tmp_path / "two"))
    other.y[other.calibration] = np.random.default_rng(0).permutation(other.y[other.calibration])
    first, second = (own.estimator.predict_proba(own.X) for own in (bench, other))
    assert (not np.array_equal(first, second)) == sees


def test_out_of_fold_rows_teach_so_that_every_calibration_row_calibrates(tiny, bench):
    problem = replace(tiny.tiny_problem(), base=BaseModel("hgb"))
    bench = problem.prepare(bench.store)
    n_rows = {m: fitted(m, bench, "aps")[0].n_calibration_ for m in (LEVELS, OUT_OF_FOLD)}
    assert n_rows[OUT_OF_FOLD] == len(bench.calibration)
    assert n_rows[LEVELS] < len(bench.calibration)
    assert sum(isinstance(key, str) for key in bench.shared) == 1 + 5  # trainings


def test_marginal_is_the_split_conformal_classifier(bench):
    clf = SplitConformalClassifier(bench.estimator, random_state=bench.seed())
    clf.conformalize(*rows(bench, "calibration"))
    assert (sets_of(MARGINAL, bench) == clf.predict_set(rows(bench, "test")[0])).all()


def test_oracles_calibrate_the_true_group_and_the_rest(bench):
    hidden = ExhaustiveConformalClassifier(
        bench.estimator,
        sensitive_features=lambda X: (X["Color"] == "Red") == (X["Gender"] == "Female"),
        random_state=bench.seed(),
    )
    hidden.conformalize(*rows(bench, "calibration"))
    partition = sets_of(ORACLES["partition"], bench)
    assert (partition == hidden.predict_set(rows(bench, "test")[0])).all()
    union, marginal = sets_of(ORACLES["union"], bench), sets_of(MARGINAL, bench)
    group = bench.group[bench.test]
    assert (union[~group] == marginal[~group]).all()
    assert (union[group] == (marginal | partition)[group]).all()


@pytest.mark.parametrize("size", [0.5, 2.5, 5.25])
def test_size_matched_sets_have_that_size(size, bench):
    assert size_matched_sets(bench, "aps", size).sum(axis=1).mean() == size
    marginal = sets_of(MARGINAL, bench)
    assert (sets_of(Method("matched", "matched", (("like", MARGINAL),)), bench) == marginal).all()


@pytest.mark.parametrize("n_draws", [1, 7])
def test_fewer_draws_are_the_first_of_many(n_draws, bench):
    parameters = (("epochs", 10), ("n_draws", n_draws))
    clf = FaReGClassifier.paper(
        bench.estimator,
        sensitive_features=bench.sensitive,
        random_state=bench.seed(),
        **dict(parameters),
    )
    with one_thread():
        clf.conformalize(*rows(bench, "calibration"))
        sets = sets_of(Method("T", "draws", parameters), bench)
    assert (sets == clf.predict_set(rows(bench, "test")[0])).all()


def test_selections_are_shares_and_both_is_at_most_either(tiny, bench):
    for method in (LEVELS, tiny.AFCP2):
        _, facts = answered(method, bench, "aps")
        shares = [facts[f"selects_{which}"] for which in ("first", "second", "both")]
        assert 0 <= shares[2] <= min(shares[:2]) <= 1
    names = [method.name for method in comparison()]
    assert len(set(names)) == len(names) == 15


def test_condcp_in_place_of_the_marginal_set_lacks_only_that_set(bench):
    few = (("epochs", 10),)
    joined = sets_of(Method("joined", "condcp+paper", few), bench)
    replaced = Method("replaced", "condcp-replaces", (*few, ("randomized", False)))
    replaced = sets_of(replaced, bench)
    assert (joined == (replaced | sets_of(MARGINAL, bench))).all()
    assert (replaced >= sets_of(Method("CondCP", "condcp"), bench)).all()
