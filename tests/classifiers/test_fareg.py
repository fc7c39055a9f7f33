"""FaReGClassifier: what it finds, its laws, its explanations, and what it does with bad input."""

import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.tree import DecisionTreeClassifier

from fareg import (
    CondCPClassifier,
    FaReGClassifier,
    FaregError,
    FaregWarning,
    PartialConformalClassifier,
    RectifiedConformalClassifier,
    SplitConformalClassifier,
)
from fareg._encoding import gradient_boosting
from fareg.calibration import IntervalSearch
from fareg.classifiers import _fareg
from fareg.classifiers._learning import (
    divide_rows,
)
from fareg.datasets import make_synthetic
from fareg.groups import GroupLearner
from fareg.metrics import coverage_by_level, is_covered
from fareg.pvalues import conformal_quantile

FAST = {"learner": GroupLearner(max_iter=40), "random_state": 0}
FAST_PAPER = {"max_iter": 60, "random_state": 0}


@pytest.fixture(scope="module")
def world():
    """Return a model, its calibration rows and test rows of the XNOR data."""
    data = make_synthetic(6000, random_state=5)
    model = FrozenEstimator(gradient_boosting(0).fit(data.X[:1500], data.y[:1500]))
    return model, data.take(slice(1500, 3500)), data.take(slice(3500, None))


@pytest.fixture(scope="module")
def fitted(world):
    model, cal, _ = world
    clf = FaReGClassifier(model, sensitive_features=list(cal.sensitive), **FAST)
    return clf.conformalize(cal.X, cal.y)


def split(world, **parameters):
    model, cal, _ = world
    return SplitConformalClassifier(model, random_state=0, **parameters).conformalize(cal.X, cal.y)


def test_finds_names_and_repairs_the_group(world, fitted):
    _, _, test = world
    group = fitted.groups_.iloc[0]
    assert set(fitted.explain().features) == {"Color", "Gender"}
    assert group["rule"] == "(Color=Blue and Gender=Male) or (Color=Red and Gender=Female)"
    assert group["fidelity"] == 1
    assert group["p_value"] < 1e-6
    assert group["low"] <= group["coverage"] <= group["high"] < 0.9
    sets = fitted.predict_set(test.X)
    marginal = split(world).predict_set(test.X)
    repaired = is_covered(test.y, sets)[test.group].mean()
    assert repaired > 0.87 > is_covered(test.y, marginal)[test.group].mean()
    assert sets.sum() < marginal.sum()


@pytest.mark.parametrize("label_conditional", [False, True])
@pytest.mark.parametrize("construction", ["levels", "partition", "union"])
@pytest.mark.parametrize("calibration", ["split", "reuse"])
@pytest.mark.parametrize("target", ["score", "coverage"])
def test_every_mode_agrees_with_its_p_values(
    world, construction, calibration, target, label_conditional
):
    model, cal, test = world
    clf = FaReGClassifier(
        model,
        sensitive_features=list(cal.sensitive),
        construction=construction,
        calibration=calibration,
        target=target,
        label_conditional=label_conditional,
        n_draws=5,
        learner=GroupLearner(max_iter=3, n_restarts=1),
        random_state=0,
    ).conformalize(cal.X[:600], cal.y[:600])
    X = test.X[:200]
    np.testing.assert_array_equal(clf.predict_set(X), clf.predict_p(X) > clf.alpha_)
    numbers = clf.groups_[["share", "n_calibration", "low", "high", "threshold"]]
    assert not numbers.isna().any(axis=None)
    others = clf.groups_[~clf.groups_["named"]]  # of those, only a fixed group and its complement
    chosen = (
        calibration == "reuse" or construction == "levels" or "everyone" in set(others["group"])
    )
    assert others["p_value"].isna().all() == chosen
    assert not (clf.groups_["named"].any() and calibration == "reuse")


def test_union_contains_the_marginal_sets(world):
    model, cal, test = world
    clf = FaReGClassifier.paper(model, sensitive_features=list(cal.sensitive), **FAST_PAPER)
    union = clf.conformalize(cal.X, cal.y).predict_set(test.X)
    marginal = split(world).predict_set(test.X)
    assert (union >= marginal).all()
    assert union.sum() > marginal.sum()


def test_a_union_tells_who_is_in_the_group_as_a_partition_does(world):
    model, cal, test = world
    known = {"sensitive_features": list(cal.sensitive), **FAST}
    union, partition = (
        FaReGClassifier(model, construction=name, **known).conformalize(cal.X, cal.y)
        for name in ("union", "partition")
    )
    levels = union.predict_level(test.X)
    assert set(levels) == {0, 1}
    np.testing.assert_array_equal(levels, partition.predict_level(test.X))
    np.testing.assert_array_equal(union.predict_table(test.X)["level"], levels)


def test_union_is_the_union_over_draws(world):
    model, cal, test = world
    clf = FaReGClassifier.paper(
        model, sensitive_features=list(cal.sensitive), n_draws=4, **FAST_PAPER
    ).conformalize(cal.X, cal.y)
    X = test.X[:300]
    scores = clf.conformity_scores(X)
    drawn = clf.calibration_.views.cells(clf._rows(X, caller="test"))
    expected = np.zeros_like(scores, dtype=bool)
    for thresholds, cells in zip(clf.thresholds_, drawn, strict=True):
        expected |= (cells == 0)[:, None] & (scores <= thresholds[0])
    np.testing.assert_array_equal(clf.predict_set(X), expected)


@pytest.mark.parametrize("construction", ["levels", "partition", "union"])
def test_delta_one_gives_split(world, construction):
    model, cal, test = world
    clf = FaReGClassifier(
        model,
        learner=GroupLearner(delta=1.0, max_iter=40),
        construction=construction,
        calibration="reuse",
        random_state=0,
    ).conformalize(cal.X, cal.y)
    np.testing.assert_array_equal(clf.predict_set(test.X), split(world).predict_set(test.X))


def test_one_cell_equals_split_on_the_rows_that_calibrate(world):
    model, cal, test = world
    rng = np.random.default_rng(0)
    noise = {"sensitive_features": lambda X: rng.integers(0, 2, len(X))}  # nothing to find
    learner = GroupLearner(significance=0.002)
    clf = FaReGClassifier(model, learner=learner, random_state=0, **noise)
    clf.conformalize(cal.X, cal.y)
    assert clf.groups_["group"].tolist() == ["everyone"]
    rest = np.random.default_rng(clf.key_).permutation(len(cal.y))[len(cal.y) // 2 :]
    expected = SplitConformalClassifier(model, random_state=0)
    expected.conformalize(cal.X.iloc[rest], cal.y[rest])
    np.testing.assert_array_equal(clf.predict_set(test.X), expected.predict_set(test.X))


def test_rows_that_teach_do_not_calibrate(world, fitted):
    _, cal, _ = world
    rows = fitted._as_rows(cal.X, np.asarray(cal.y), role="calibration")
    learning, rest = divide_rows(rows, None, "split", fitted.key_, "look for a group")
    assert not set(learning.X.index) & set(rest.X.index)
    np.testing.assert_array_equal(fitted.calibration_.scores, rest.own_scores)


@pytest.mark.parametrize("way", ["fit", "split", "clusters", "X_learn", "reuse"])
def test_explanations_read_rows_from_all_over_a_sorted_table(way, monkeypatch):
    monkeypatch.setattr(_fareg, "REFERENCE_ROWS", 100)
    X, y = pd.DataFrame({"place": np.linspace(0, 1, 800)}), np.arange(800) % 2
    model = DecisionTreeClassifier(max_depth=2, random_state=0)
    clf = FaReGClassifier(model, calibration="reuse" if way == "reuse" else "auto", **FAST)
    if way == "fit":
        clf.fit(X, y)
    else:
        model.fit(X, y)
        options = {
            "clusters": {"clusters": np.arange(800) // 4},
            "X_learn": {"X_learn": X, "y_learn": y},
        }
        clf.conformalize(X, y, **options.get(way, {}))
    place = clf.reference_["place"]
    assert len(place) == 100
    assert abs(place.mean() - 0.5) < 4 * 12**-0.5 / 10  # the mean of 100 uniform numbers


def test_a_row_never_depends_on_its_neighbours(world, fitted):
    _, _, test = world
    together = fitted.predict_set(test.X[:60])
    alone = np.vstack([fitted.predict_set(test.X[i : i + 1]) for i in range(60)])
    np.testing.assert_array_equal(alone, together)


@pytest.mark.parametrize("base", [CondCPClassifier(), PartialConformalClassifier()])
@pytest.mark.parametrize("construction", ["levels", "partition", "union"])
def test_the_base_joins_the_union(world, base, construction):
    model, cal, test = world
    clf = FaReGClassifier(
        model,
        base=base,
        construction=construction,
        calibration="reuse",
        sensitive_features=list(cal.sensitive),
        n_draws=3,
        **FAST,
    ).conformalize(cal.X, cal.y)
    alone = type(base)(model, sensitive_features=list(cal.sensitive), random_state=0)
    alone.conformalize(cal.X, cal.y)
    assert (clf.predict_set(test.X) >= alone.predict_set(test.X)).all()


def test_base_must_be_one_of_ours(world):
    model, cal, _ = world
    with pytest.raises(FaregError, match="base must be a conformal classifier"):
        FaReGClassifier(model, base=gradient_boosting()).conformalize(cal.X, cal.y)


def test_paper_is_the_published_configuration():
    clf = FaReGClassifier.paper()
    assert (clf.construction, clf.calibration, clf.target) == ("union", "reuse", "coverage")
    learner = clf.learner
    assert (learner.beta, learner.delta, clf.n_draws, learner.max_iter) == (2.0, 0.3, 20, 2000)
    assert learner.numbers == "codes"
    nursery = FaReGClassifier.paper(data="nursery")
    learner = nursery.learner
    assert (learner.beta, learner.delta, nursery.n_draws, learner.max_iter) == (0.1, 0.1, 100, 800)
    with pytest.raises(FaregError, match="data must be one of"):
        FaReGClassifier.paper(data="mnist")


def test_paper_refuses_what_would_drop_its_settings_and_what_it_does_not_know():
    with pytest.raises(FaregError, match="makes the published learner itself"):
        FaReGClassifier.paper(learner=GroupLearner(max_iter=3))
    assert FaReGClassifier.paper(learner=None).learner.max_iter == 2000
    slips = {"detla": "delta", "n_draw": "n_draws", "confidence": "confidence_level"}
    for slip, meant in slips.items():
        said = rf"^FaReGClassifier.paper has no parameter {slip}; did you mean {meant}\?$"
        with pytest.raises(FaregError, match=said):
            FaReGClassifier.paper(**{slip: 1})


def test_explanations_rank_the_features_that_matter(fitted):
    explanation = fitted.explain()
    assert explanation.ranking.index[:2].isin(["Color", "Gender"]).all()
    np.testing.assert_allclose(explanation.ranking.sum(), 1)
    steps = explanation.traversal["step"].tolist()
    assert steps == sorted(steps)
    assert explanation.traversal["membership"].between(0, 1).all()
    assert np.ptp(explanation.traversal["membership"]) > 0.05


def test_plot_levels_draws_the_numbers_of_coverage_by_level(world, fitted):
    _, _, test = world
    figure = fitted.plot_levels(test.X, test.y)
    left, right = figure.axes
    levels, n_levels = fitted.predict_level(test.X), len(fitted.thresholds_)
    np.testing.assert_array_equal(left.patches[0].get_data().values, fitted.thresholds_[:, 0])
    drawn = dict(zip(*right.get_legend_handles_labels()[::-1], strict=True))
    for name, sets in (
        ("FaReG", fitted.predict_set(test.X)),
        ("split conformal", same_rows_split(fitted).predict_set(test.X)),
    ):
        table = coverage_by_level(levels, is_covered(test.y, sets), n_levels=n_levels)
        shown = drawn[name].lines[0].get_ydata().astype(float)
        np.testing.assert_allclose(shown, table["coverage"].dropna())
    assert any(line.get_ydata()[0] == pytest.approx(0.9) for line in right.lines)


def same_rows_split(fitted):
    """Return split conformal sets with the very rows that calibrate a classifier with levels."""
    split = SplitConformalClassifier(fitted.estimator, random_state=0)
    split.__dict__.update({k: v for k, v in vars(fitted).items() if k.endswith("_")})
    split.freeze_parameters()
    scores = fitted.calibration_.scores
    quantile = conformal_quantile(scores, confidence_level=0.9)
    split.calibration_ = SimpleNamespace(thresholds=lambda rows: np.full((1, 1), quantile))
    return split


@pytest.mark.parametrize(
    "parameters", [{"n_levels": 1}, {"label_conditional": True}, {"allow_empty": False}]
)
def test_plot_levels_has_two_panels_in_every_mode(world, parameters):
    model, cal, test = world
    clf = FaReGClassifier(model, sensitive_features=list(cal.sensitive), **FAST, **parameters)
    clf.conformalize(cal.X[:600], cal.y[:600])
    figure = clf.plot_levels(test.X[:500], test.y[:500])
    assert len(figure.axes) == 2
    figure.draw_without_rendering()
    for ax in figure.axes:
        assert all(tick == round(tick) for tick in ax.get_xticks())
    assert ("of each label" in figure.get_suptitle()) == ("label_conditional" in parameters)


def test_plot_levels_of_other_constructions_is_refused_in_one_sentence(world):
    model, cal, test = world
    clf = FaReGClassifier(model, construction="partition", **FAST).conformalize(
        cal.X[:300], cal.y[:300]
    )
    with pytest.raises(FaregError, match='needs construction="levels", got "partition"'):
        clf.plot_levels(test.X, test.y)


@pytest.mark.parametrize("construction", ["partition", "union"])
def test_groups_without_a_network_to_learn_them_are_refused_at_the_start(world, construction):
    model, cal, _ = world
    learner = GroupLearner(members=("cells",))
    clf = FaReGClassifier(model, construction=construction, learner=learner)
    with pytest.raises(FaregError, match="needs the network, which alone learns a membership"):
        clf.conformalize(cal.X, cal.y)
    assert not hasattr(clf, "key_")


def test_levels_without_a_network_have_explanations_and_no_picture_of_a_membership(world):
    model, cal, _ = world
    learner = GroupLearner(members=("cells",))
    clf = FaReGClassifier(
        model, sensitive_features=list(cal.sensitive), learner=learner, random_state=0
    ).conformalize(cal.X, cal.y)
    assert clf.learner_.found_
    assert len(clf.explain().ranking) == len(cal.sensitive)
    with pytest.raises(FaregError, match="plot_groups draws the membership that a network learned"):
        clf.plot_groups()
    with pytest.raises(FaregError, match="membership needs the network"):
        clf.learner_.membership(cal.X)


def test_explanations_of_the_default_do_not_show_its_network(world):
    """One of its several models is a network, whose weight is about 0.01."""
    model, cal, _ = world
    clf = FaReGClassifier(model, sensitive_features=list(cal.sensitive), random_state=0)
    clf.conformalize(cal.X[:1500], cal.y[:1500])
    assert clf.learner_.found_
    told = clf.explain()
    assert list(told.ranking) == ["permutation"]
    assert set(told.ranking.index[:2]) == {"Color", "Gender"}
    assert told.traversal.empty
    with pytest.raises(FaregError, match="other models made the levels: kernel, boosting;"):
        clf.plot_groups()


def test_plot_groups_draws_one_panel_per_step(fitted):
    figure = fitted.plot_groups(steps=(0, 1))
    panels = [ax for ax in figure.axes if ax.get_title()]
    assert len(panels) == 2
    with pytest.raises(FaregError, match="features must be two of"):
        fitted.plot_groups(features=("Color", "no such"))


def test_membership_is_a_probability_and_separates(world, fitted):
    _, _, test = world
    q = fitted.predict_group(test.X)
    assert q.shape == (len(test.y),)
    assert ((q >= 0) & (q <= 1)).all()
    assert q[test.group].min() > q[~test.group].max()


def test_ranks_are_shares_that_are_at_most_as_disadvantaged(world, fitted):
    _, _, test = world
    leveler = fitted.calibration_.leveler
    b = fitted.learner_.disadvantage(test.X[list(fitted.reference_)])
    shares = (leveler.grid[:, None] <= b + 1e-8).mean(axis=0)
    np.testing.assert_allclose(fitted.predict_group(test.X), shares)


def test_polars_and_pandas_give_the_same_sets(world, fitted):
    _, _, test = world
    np.testing.assert_array_equal(
        fitted.predict_set(pl.from_pandas(test.X)), fitted.predict_set(test.X)
    )


def mixed(n, seed=0, k=3):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "a": rng.choice(["x", "y"], n),
            "b": np.where(rng.random(n) < 0.2, np.nan, rng.normal(size=n)),
            "constant": 1.0,
            "many": [f"c{j}" for j in rng.integers(0, 500, n)],
        }
    )
    return X, rng.integers(0, k, n)


@pytest.mark.filterwarnings("ignore::fareg.FaregWarning")
@pytest.mark.parametrize("n", [20, 61, 200])
@pytest.mark.parametrize(
    ("construction", "sensitive"),
    [
        ("levels", None),
        ("levels", ["a"]),
        ("levels", ["constant"]),
        ("levels", ["b", "many"]),
        ("partition", None),
        ("union", ["b", "many"]),
    ],
)
def test_hard_tables_get_an_answer(n, construction, sensitive):
    X, y = mixed(2 * n)
    clf = FaReGClassifier(
        sensitive_features=sensitive,
        construction=construction,
        learner=GroupLearner(significance=None, max_iter=5),
        n_draws=3,
        random_state=0,
    ).fit(X, y)
    assert clf.predict_set(X).shape == (2 * n, 3)
    p, q = clf.predict_p(X), clf.predict_group(X)
    assert np.isfinite(p).all()
    assert np.isfinite(q).all()
    clf.explain()


def test_few_rows_fall_back_to_split_with_one_warning():
    X, y = mixed(60)
    with pytest.warns(FaregWarning, match="too few to look for a group") as caught:
        FaReGClassifier(gradient_boosting(0), random_state=0).fit(X, y)
    assert sum("too few" in str(w.message) for w in caught) == 1


@pytest.mark.parametrize("n_clusters", [2, 3, 4, 8])
@pytest.mark.parametrize("calibration", ["auto", "split", "reuse"])
def test_few_clusters_fall_back_to_split_with_one_warning(n_clusters, calibration):
    data = make_synthetic(400, random_state=0)
    clusters = np.arange(400) % n_clusters
    model = DecisionTreeClassifier(max_depth=3, random_state=0)
    X, sensitive = data.X.select_dtypes("number"), data.X[list(data.sensitive)]
    clf = FaReGClassifier(model, calibration=calibration, random_state=0)
    with pytest.warns(FaregWarning, match="clusters of .* rows are too few to look for") as caught:
        clf.fit(X, data.y, clusters=clusters, sensitive_features=sensitive)
    assert sum("too few" in str(w.message) for w in caught) == 1
    split = SplitConformalClassifier(model, random_state=0).fit(X, data.y, clusters=clusters)
    sets = clf.predict_set(X, sensitive_features=sensitive)
    np.testing.assert_array_equal(sets, split.predict_set(X))


@pytest.mark.parametrize("n_clusters", [1, 4, 5])
def test_learning_rows_of_few_clusters_teach_nothing(world, n_clusters):
    model, cal, _ = world
    clf = FaReGClassifier(model, sensitive_features=list(cal.sensitive), random_state=0)
    learn = {"X_learn": cal.X[:200], "y_learn": cal.y[:200]}
    ids = np.arange(200) % n_clusters
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FaregWarning)
        clf.conformalize(cal.X[200:600], cal.y[200:600], clusters_learn=ids, **learn)
    assert sum("too few to look for" in str(w.message) for w in caught) == (n_clusters < 5)
    assert n_clusters >= 5 or len(clf.groups_) == 1


@pytest.mark.parametrize("covers", [True, False])
def test_everything_or_nothing_covered(reader, covers):
    """A model that is always right, or always wrong, leaves no group to find."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 300)
    right = np.eye(3)[y if covers else (y + 1) % 3]
    X = np.hstack([right, rng.normal(size=(300, 2))])
    clf = FaReGClassifier(
        reader(), conformity_score="lac", target="coverage", sensitive_features=[3, 4], **FAST
    ).conformalize(X, y)
    assert clf.groups_["group"].tolist() == ["everyone"]
    assert is_covered(y, clf.predict_set(X)).mean() >= 0.9


@pytest.mark.parametrize(
    ("parameter", "value", "sentence"),
    [
        ("learner", GroupLearner(delta=0), "delta must be a number in"),
        ("learner", GroupLearner(delta=1.01), "delta must be a number in"),
        ("learner", "network", "learner must be a fareg.groups.GroupLearner"),
        ("construction", "tree", "construction must be one of levels, partition, union"),
        ("calibration", "both", "calibration must be one of"),
        ("target", "y", "target must be one of"),
        ("n_draws", 0, "n_draws must be a whole number"),
        ("sensitive_features", ["nobody"], "no column of X"),
    ],
)
def test_bad_parameters_get_one_clear_sentence(world, parameter, value, sentence):
    model, cal, _ = world
    with pytest.raises(FaregError, match=sentence) as caught:
        FaReGClassifier(model, **{parameter: value}).conformalize(cal.X, cal.y)
    assert "\n" not in str(caught.value)


def test_rows_that_teach_leave_the_noted_columns_alone(world):
    model, cal, _ = world
    clf = FaReGClassifier(model, sensitive_features=list(cal.sensitive), **FAST)
    learn = cal.X[:300].assign(**{"Feature 1": None})
    clf.conformalize(cal.X[300:], cal.y[300:], X_learn=learn, y_learn=cal.y[:300])
    assert clf.column_kinds_["Feature 1"] == "number"
    assert clf.n_calibration_ == len(cal.y) - 300
    assert len(clf.calibration_.scores) == len(cal.y) - 300  # all of them calibrate


def test_draws_are_of_a_union_only(fitted):
    with pytest.raises(FaregError, match="with_draws takes 1 to 0 draws of a union"):
        fitted.with_draws(2)


@pytest.mark.parametrize("label_conditional", [False, True])
def test_the_first_draws_are_those_of_a_union_with_so_many(world, label_conditional):
    model, cal, test = world

    def drawn(n_draws):
        return FaReGClassifier(
            model,
            construction="union",
            sensitive_features=list(cal.sensitive),
            label_conditional=label_conditional,
            n_draws=n_draws,
            **FAST,
        ).conformalize(cal.X, cal.y)

    many, few = drawn(6), drawn(2)
    some = many.with_draws(2)
    np.testing.assert_array_equal(some.predict_set(test.X), few.predict_set(test.X))
    assert not many.groups_.equals(few.groups_)
    pd.testing.assert_frame_equal(some.groups_, few.groups_)


@pytest.mark.parametrize("label_conditional", [False, True])
def test_recalibration_follows_the_parameters_of_the_fit(world, label_conditional):
    model, cal, test = world
    clf = FaReGClassifier(
        model,
        sensitive_features=list(cal.sensitive),
        label_conditional=label_conditional,
        **FAST,
    ).conformalize(cal.X, cal.y)
    problems = test.y if label_conditional else np.zeros_like(test.y)
    n_problems = len(clf.classes_) if label_conditional else 1
    n_levels = clf.calibration_.leveler.n_levels
    search = IntervalSearch(n_levels, n_problems, clf.alpha_, len(test.y))
    scores = clf.conformity_scores(test.X)[np.arange(len(test.y)), test.y]
    while search.is_open:
        asked = search.next_round()
        search.narrow(asked.count(scores, clf.predict_level(test.X), problems))
    found = clf.recalibrated(search, n_unknown=5)
    assert found.n_calibration_ == len(test.y) + 5 * label_conditional
    assert (found.calibration_.labels is not None) == label_conditional
    clf.set_params(label_conditional=not label_conditional)
    with pytest.raises(FaregError, match="label_conditional was changed after fit"):
        clf.recalibrated(search, n_unknown=5)


def test_a_base_with_features_of_its_own_asks_the_estimator_once(world, monkeypatch):
    model, cal, test = world
    base = RectifiedConformalClassifier(sensitive_features=["Color"])
    clf = FaReGClassifier(model, base=base, sensitive_features=list(cal.sensitive), **FAST)
    clf.conformalize(cal.X[:600], cal.y[:600])
    asked = []
    answer = clf.estimator_.predict_proba

    def counted(X):
        asked.append(len(X))
        return answer(X)

    expected = clf.predict_set(test.X)
    monkeypatch.setattr(clf.estimator_, "predict_proba", counted, raising=False)
    np.testing.assert_array_equal(clf.predict_set(test.X), expected)
    clf.predict_p(test.X)
    assert asked == [len(test.X)] * 2
