"""A disadvantage is learned from any table, honestly: no row is predicted by what it taught."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline

from fareg import FaregError
from fareg._columns import canonical
from fareg._encoding import FillEmpty, ordinal_encoder
from fareg.groups import _disadvantage as module
from fareg.groups import _members as members
from fareg.groups import learn_disadvantage
from fareg.groups._disadvantage import (
    STRONG,
    WEAK,
    Signal,
    draw_folds,
    measure_signal,
    read_columns,
    stack_weights,
)
from fareg.groups._members import (
    N_FOLDS,
    PENALTIES,
    READS,
    ColumnReading,
    KernelSum,
    learn_given,
    learn_smooth,
)
from fareg.persistence._codec import Reader, Writer


def people_of(n, seed=0, gap=0.5):
    """Draw a table with an interaction, a smooth slope and noise columns; return who is hard."""
    rng = np.random.default_rng(seed)
    people = pd.DataFrame(
        {
            "Color": rng.choice(["Red", "Blue"], n),
            "Gender": rng.choice(["Female", "Male"], n),
            "Age": rng.integers(18, 90, n).astype(float),
            "Region": rng.choice(list("abcde"), n),
        }
    ).astype({"Color": object, "Gender": object, "Region": object})
    hard = ((people["Color"] == "Red") == (people["Gender"] == "Female")).to_numpy()
    target = 1 - np.clip(rng.random(n) - gap * hard + gap / 2, 0, 1)
    return people, target, hard


@pytest.fixture(scope="module")
def learned():
    people, target, hard = people_of(800)
    return learn_disadvantage(people, target, seed=0), people, target, hard


def test_those_worse_off_have_more_of_it(learned):
    fitted, _, target, hard = learned
    fresh, _, fresh_hard = people_of(2000, seed=1)
    b = fitted.predict(fresh)
    assert b[fresh_hard].min() > b[~fresh_hard].max()
    assert set(fitted.features) == {"Color", "Gender"}
    assert fitted.columns == ("Color", "Gender", "Age", "Region")
    assert fitted.signal.p_value < 0.5
    assert fitted.signal.gain > 0.1
    # it is an expected shortfall, not just an order
    assert b[fresh_hard].mean() == pytest.approx(target[hard].mean(), abs=0.05)


def test_a_row_never_depends_on_the_rows_next_to_it(learned):
    fitted, people, _, _ = learned
    together = fitted.predict(people)
    alone = np.concatenate([fitted.predict(people.iloc[[i]]) for i in range(10)])
    np.testing.assert_array_equal(alone, together[:10])
    np.testing.assert_array_equal(fitted.predict(people.iloc[::-1])[::-1], together)
    assert fitted.predict(people.iloc[:0]).shape == (0,)
    np.testing.assert_array_equal(np.round(together, 9), together)


def test_numbers_are_read_by_rank():
    column = pd.Series(np.arange(1000.0), name="a")
    reading = ColumnReading.learn(column)
    ranks = reading.read(column)
    stretched = ColumnReading.learn(np.exp(column / 100)).read(np.exp(column / 100))
    np.testing.assert_array_equal(stretched, ranks)
    assert (np.diff(ranks) >= 0).all()
    np.testing.assert_allclose(ranks, np.arange(1000) / 999, atol=0.002)
    odd = pd.Series([np.nan, np.inf, -np.inf, 1e300, -1e300])
    assert reading.read(odd).tolist() == [-1, 1, 0, 1, 0]


def test_clusters_are_held_out_whole_and_folds_are_even():
    rng = np.random.default_rng(0)
    clusters = rng.integers(0, 23, 400)
    cluster, fold = draw_folds(400, clusters, rng)
    assert all(len(np.unique(fold[clusters == c])) == 1 for c in range(23))
    sizes = [len(np.unique(cluster[fold == k])) for k in range(N_FOLDS)]
    assert max(sizes) - min(sizes) <= 1


def test_repeated_rows_are_no_evidence():
    """Every row of a noisy table ten times: its copies predict it unless they are held out."""
    people, _, _ = people_of(60)
    target = np.random.default_rng(0).random(60)
    many = people.loc[np.repeat(people.index, 10)].reset_index(drop=True)
    many["id"] = np.repeat(np.arange(60.0), 10)  # separates the copies perfectly
    naive = learn_disadvantage(many, np.repeat(target, 10), seed=0)
    assert naive.signal.p_value < 1e-6
    known = learn_disadvantage(many, np.repeat(target, 10), np.repeat(np.arange(60), 10), seed=0)
    assert known.signal.p_value > 0.05


@pytest.mark.slow
@pytest.mark.parametrize(("n_columns", "n_tables"), [(4, 200), (12, 100), (40, 30)])
def test_the_p_value_of_noise_holds_its_level(n_columns, n_tables):
    p_values = []
    for seed in range(n_tables):
        rng = np.random.default_rng([n_columns, seed])
        columns = {f"c{j}": rng.normal(size=400) for j in range(0, n_columns, 2)}
        columns |= {f"c{j}": rng.choice(list("abcd"), 400) for j in range(1, n_columns, 2)}
        people = canonical(pd.DataFrame(columns))
        p_values.append(learn_disadvantage(people, rng.random(400), seed=seed).signal.p_value)
    for level in (STRONG, WEAK):
        assert np.sum(np.array(p_values) <= level) <= binom.ppf(0.999, n_tables, level)


def test_folds_that_differ_in_their_mean_are_no_evidence():
    """The others' mean, as a prediction, falls where a fold's own mean rises."""
    rng = np.random.default_rng(0)
    cluster, fold = draw_folds(1000, None, rng)
    target = rng.random(1000) + fold
    others = np.array([target[fold != k].mean() for k in range(N_FOLDS)])
    noise = rng.normal(0, 1e-3, 1000)
    p_values = [
        measure_signal(s * others[fold] + noise, target, fold, cluster).p_value for s in (1, -1)
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


HOSTILE = {
    "constant": lambda rng, n: np.zeros(n),
    "missing": lambda rng, n: np.full(n, np.nan),
    "infinite": lambda rng, n: np.where(rng.random(n) < 0.1, np.inf, rng.normal(size=n)),
    "holes": lambda rng, n: np.where(rng.random(n) < 0.5, np.nan, rng.normal(size=n)),
    "many": lambda rng, n: pd.Series([f"c{j}" for j in rng.integers(0, 1000, n)], dtype=object),
    "huge": lambda rng, n: rng.normal(size=n) * 1e300,
    "empty": lambda rng, n: pd.Series([None] * n, dtype=object),
}


@pytest.mark.parametrize("learner", [None, Ridge(), RandomForestRegressor(5)])
@pytest.mark.parametrize("names", [*[[name] for name in HOSTILE], list(HOSTILE)])
def test_hostile_columns_give_numbers(names, learner):
    rng = np.random.default_rng(0)
    people = pd.DataFrame({name: HOSTILE[name](rng, 400) for name in names})
    fitted = learn_disadvantage(people, rng.random(400), learner=learner, seed=0)
    strange = {"many": "never seen", "holes": -np.inf, "missing": 5.0, "empty": "now full"}
    changed = people.assign(**{name: v for name, v in strange.items() if name in people})
    for table in (people, changed):
        b = fitted.predict(canonical(table))
        assert ((b >= 0) & (b <= 1)).all()


def test_a_group_at_the_end_of_a_long_sorted_table_is_learned(monkeypatch):
    """More rows than any model looks at, in the order of the feature that makes the group."""
    monkeypatch.setattr(module, "MAX_LEARNING_ROWS", 3000)
    monkeypatch.setattr("fareg.groups._members.MAX_ROWS", 2000)
    monkeypatch.setattr(members, "MAX_SMOOTH_ROWS", 2000)
    rng = np.random.default_rng(0)
    n = 6000
    people = pd.DataFrame({"state": np.sort(rng.integers(0, 20, n)), "x": rng.normal(size=n)})
    people = people.assign(state=people["state"].astype(str)).astype({"state": object})
    wronged = people["state"].isin(["18", "19"]).to_numpy()
    assert not wronged[:5000].any()
    target = (rng.random(n) < np.where(wronged, 0.5, 0.05)).astype(float)
    b = learn_disadvantage(people, target, seed=0).predict(people)
    assert b[wronged].min() > b[~wronged].max()


def test_a_learner_that_is_no_regressor_is_refused():
    people, target, _ = people_of(100)
    labels = np.where(target > 0.5, 1.0, 0.0)

    class Pairs(DummyClassifier):
        def predict(self, X):
            return self.predict_proba(X)

    with pytest.raises(FaregError, match="learner must predict one finite number per row"):
        learn_disadvantage(people, labels, learner=Pairs(), seed=0)


# --- honesty, the smooth model, and learners ---


def trees_alone(matrix, target, fold):
    return learn_given(members.TREES, matrix, target, fold, 0)[0]


def smooth_alone(matrix, target, fold):
    is_category, columns = np.array([True, True, False, True]), [np.array([0, 2])] * len(READS)
    return learn_smooth(matrix, is_category, target, fold, columns, 0)[0]


def matrix_of(people):
    return read_columns(tuple(ColumnReading.learn(column) for _, column in people.items()), people)


@pytest.mark.parametrize("learn", [trees_alone, smooth_alone])
def test_no_row_is_predicted_by_what_its_fold_taught(learn):
    people, target, _ = people_of(300)
    matrix, rng = matrix_of(people), np.random.default_rng(0)
    _, fold = draw_folds(300, np.arange(300) // 2, rng)
    honest = learn(matrix, target, fold)
    for k in range(N_FOLDS):
        again = learn(matrix, np.where(fold == k, 5 * rng.random(300), target), fold)
        np.testing.assert_allclose(again[fold == k], honest[fold == k], atol=1e-9)
        assert not np.allclose(again[fold != k], honest[fold != k], atol=1e-3)


def test_few_kinds_of_rows_have_the_exact_kernel_regression():
    """If every kind of row is a centre, the regression is ``k(x, X) (K + c I)^-1 y``."""
    people, target, _ = people_of(300)
    matrix, fold = matrix_of(people[["Color", "Region"]]), np.arange(300) % N_FOLDS
    is_category = np.array([True, True])
    out_of_fold, sums = learn_smooth(matrix, is_category, target, fold, [np.arange(2)] * 6, 0)
    K = KernelSum(np.arange(2), is_category, 1.0, matrix, np.zeros(300)).kernel(matrix)
    average = np.zeros(300)
    for k in range(N_FOLDS + 1):
        trains = fold != k
        kernel, y = K[np.ix_(trains, trains)], target[trains] - target[trains].mean()

        def error(c, kernel=kernel, y=y):
            smoother = kernel @ np.linalg.inv(kernel + c * np.eye(len(y)))
            residual = y - smoother @ y
            return (residual @ residual) / (1 - np.trace(smoother) / (len(y) + 1)) ** 2

        best = min(PENALTIES, key=error)
        expected = K[:, trains] @ np.linalg.solve(kernel + best * np.eye(len(y)), y)
        np.testing.assert_allclose(out_of_fold[fold == k], expected[fold == k], atol=1e-4)
        average += expected / (N_FOLDS + 1)
    np.testing.assert_allclose(sum(one.predict(matrix) for one in sums), average, atol=1e-4)


@pytest.mark.parametrize("case", ["few rows", "no rows", "clusters", "equal", "ids", "dummy"])
def test_where_nothing_can_be_learned_there_is_no_signal(case, monkeypatch):
    people, target, _ = people_of(300)
    clusters = np.arange(300) % 4 if case == "clusters" else None
    if "rows" in case:
        people, target = people[: 49 * (case[0] == "f")], target[: 49 * (case[0] == "f")]
    if case == "equal":
        target = np.ones(300)
    if case == "ids":
        monkeypatch.setattr("fareg.groups._members.MAX_CELLS", 100)
        people = pd.DataFrame({"id": [f"p{i}" for i in range(300)]}).astype(object)
    learner = DummyRegressor() if case == "dummy" else None
    fitted = learn_disadvantage(people, target, clusters, learner=learner, seed=0)
    assert fitted.signal.n_levels(1000, 20) == 1
    mean = target.mean() if len(target) else 0.0
    np.testing.assert_allclose(fitted.predict(people), mean, atol=1e-9)
    fitted.check(people)


@pytest.mark.parametrize("kind", ["default", "regressor", "pipeline"])
def test_any_regressor_learns_and_is_stored(kind):
    people, target, hard = people_of(600)
    forest = RandomForestRegressor(20)
    learner = {"regressor": forest, "default": None}.get(
        kind, make_pipeline(ordinal_encoder(), FillEmpty(), forest)
    )
    if kind != "pipeline":
        people.loc[::7, "Age"] = np.nan
    first, again = (learn_disadvantage(people, target, learner=learner, seed=1) for _ in "ab")
    b = first.predict(people)
    assert b[hard].mean() > b[~hard].mean() + 0.2
    assert first.signal.p_value < 0.5
    np.testing.assert_array_equal(again.predict(people), b)  # its random_state is set
    assert forest.random_state is None
    if kind == "pipeline":  # its encoder has functions, which only a whole model file names
        return
    writer = Writer()
    written = json.loads(json.dumps(writer.write(first, "disadvantage")))
    back = Reader(writer.arrays, 10**6).read(written)
    np.testing.assert_array_equal(back.predict(people), b)
    assert back.signal == first.signal
    back.check(people)
