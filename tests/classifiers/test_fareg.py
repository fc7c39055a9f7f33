"""FaReGClassifier: what it finds, its laws, its parameters, and what it does with bad input."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.tree import DecisionTreeRegressor

from fareg import (
    FaReGClassifier,
    FaregError,
    FaregWarning,
    SplitConformalClassifier,
)
from fareg._encoding import gradient_boosting
from fareg.calibration import LevelThresholds, Union
from fareg.classifiers._models import divide_rows
from fareg.datasets import make_synthetic
from fareg.groups import Rule
from fareg.metrics import coverage_by_level, is_covered
from fareg.paper import NetworkLearner
from fareg.pvalues import conformal_quantile
from registry import batch_of

HARD = {"Color = Blue and Gender = Male", "Color = Red and Gender = Female"}


@pytest.fixture(scope="module")
def world():
    """Return a model, its calibration rows and test rows of the XNOR data."""
    data = make_synthetic(6000, random_state=5)
    model = FrozenEstimator(gradient_boosting(0).fit(data.X[:1500], data.y[:1500]))
    return model, data.take(slice(1500, 3500)), data.take(slice(3500, None))


def made(world, **parameters):
    """Return a classifier of the world's sensitive features that is not fitted yet."""
    model, cal, _ = world
    given = {"sensitive_features": list(cal.sensitive), "random_state": 0, **parameters}
    return FaReGClassifier(model, **given)


@pytest.fixture(scope="module")
def fitted(world):
    _, cal, _ = world
    return made(world).conformalize(cal.X, cal.y)


def rows_that_calibrate(clf, data):
    """Return the numbers of the rows that are left to calibrate where the others teach."""
    return np.random.default_rng(clf.key_).permutation(len(data.y))[len(data.y) // 2 :]


@pytest.fixture(scope="module")
def same_rows_split(world, fitted):
    """Return split conformal sets with the very rows that calibrate the fitted classifier."""
    model, cal, _ = world
    rest = rows_that_calibrate(fitted, cal)
    split = SplitConformalClassifier(model, random_state=0)
    return split.conformalize(cal.X.iloc[rest], cal.y[rest])


# --- what it finds ---


def test_finds_names_and_repairs_the_group(world, fitted, same_rows_split):
    _, _, test = world
    assert {group.rule.text for group in fitted.named_groups_} == HARD
    shares = fitted.explain(test.X)
    assert shares.index[:2].isin(["Color", "Gender"]).all()
    assert set(shares.index) == set(test.sensitive)
    assert shares.is_monotonic_decreasing
    np.testing.assert_allclose(shares.sum(), 1)
    table = fitted.groups_[fitted.groups_["named"]]
    assert set(table["rule"]) == HARD
    assert (table["p_value"] < 1e-3).all()
    assert (table["low"] <= table["coverage"]).all()
    assert (table["coverage"] <= table["high"]).all()
    assert (table["high"] < 0.9).all()
    sets, plain = fitted.predict_set(test.X), same_rows_split.predict_set(test.X)
    repaired = is_covered(test.y, sets)[test.group].mean()
    assert repaired > 0.87 > is_covered(test.y, plain)[test.group].mean()
    assert sets.sum() < plain.sum()


def test_rows_teach_or_calibrate_and_ranks_are_shares_of_those_that_teach(world, fitted):
    _, cal, test = world
    rows = fitted.labelled_rows(cal.X, cal.y)
    learning, calibrating = divide_rows(rows, None, "split", fitted.key_, "look for a group")
    own = rows_that_calibrate(fitted, cal)
    assert not set(learning.u) & set(calibrating.u)
    np.testing.assert_array_equal(fitted.calibration_.sample.score, calibrating.score)
    np.testing.assert_array_equal(calibrating.score, rows.score[own])
    learned = fitted.disadvantage_.predict(learning.people)
    b = fitted.disadvantage_.predict(batch_of(fitted, test.X).people)
    shares = (learned <= b[:, None]).mean(axis=1)
    np.testing.assert_allclose(fitted.predict_group(test.X), shares, atol=2e-3)


# --- laws ---


@pytest.mark.parametrize("label_conditional", [False, True])
@pytest.mark.parametrize(
    ("protect", "score"),
    [("found", "aps"), ("nothing", "lac"), ([Rule.parse("Color = Red")], "aps")],
)
@pytest.mark.filterwarnings("ignore::fareg.FaregWarning")
def test_sets_p_values_and_thresholds_agree(world, protect, label_conditional, score):
    _, cal, test = world
    clf = made(
        world, protect=protect, label_conditional=label_conditional, conformity_score=score
    ).conformalize(cal.X[:600], cal.y[:600])
    assert "for every degree of disadvantage in between" in clf.promise_
    assert clf.promise_.count(", and for") == 1
    assert ("every protected group" in clf.promise_) == bool(clf.protected_)
    X = test.X[:200]
    sets = clf.predict_set(X)
    np.testing.assert_array_equal(sets, clf.predict_p(X) > clf.alpha_)
    thresholds = clf.calibration_.thresholds(batch_of(clf, X))
    np.testing.assert_array_equal(sets, clf.conformity_scores(X) <= thresholds)
    numbers = clf.groups_[["share", "n_calibration", "threshold"]]
    assert not numbers.isna().any(axis=None)
    levels = clf.groups_[
        clf.groups_["rule"] == ""
    ]  # these rows pooled them, so they cannot test them
    assert levels["p_value"].isna().all()
    assert levels["n_calibration"].sum() == clf.n_calibration_


@pytest.mark.filterwarnings("ignore::fareg.FaregWarning")
def test_nothing_found_is_split_on_the_rows_that_calibrate(world, same_rows_split):
    _, cal, test = world
    noise = {"sensitive_features": lambda X: np.zeros(len(X))}  # nothing to find
    clf = made(world, **noise).conformalize(cal.X, cal.y)
    assert clf.groups_["group"].tolist() == ["everyone"]
    assert clf.named_groups_ == clf.protected_ == ()
    np.testing.assert_array_equal(clf.predict_set(test.X), same_rows_split.predict_set(test.X))
    np.testing.assert_array_equal(clf.predict_p(test.X), same_rows_split.predict_p(test.X))
    assert clf.predict_level(test.X).tolist() == [0] * len(test.y)
    assert (clf.explain(test.X) == 0).all()


# --- groups with a threshold of their own ---

OWN = [Rule.parse("Color = Red"), Rule.parse('"Age Group" in {Child, Elder} and Gender = Male')]


def brute_force_thresholds(clf, X_cal, score, X):
    """Return the threshold of each row: that of its level, or of a group of it if it is larger."""
    own = clf.thresholds_[clf.predict_level(X)]
    for rule in clf.protected_:
        inside = rule.inside(X_cal)
        group = conformal_quantile(score[inside], confidence_level=0.9)
        own = np.where(rule.inside(X), np.maximum(own, group), own)
    return own


@pytest.mark.parametrize("protect", ["found", "nothing", OWN])
def test_the_larger_threshold_of_level_and_protected_groups_counts(world, protect):
    _, cal, test = world
    clf = made(world, protect=protect).conformalize(
        cal.X[1000:], cal.y[1000:], X_learn=cal.X[:1000], y_learn=cal.y[:1000]
    )
    score = clf.labelled_rows(cal.X[1000:], cal.y[1000:]).score
    own = brute_force_thresholds(clf, cal.X[1000:], score, test.X)
    np.testing.assert_array_equal(
        clf.predict_set(test.X), clf.conformity_scores(test.X) <= own[:, None]
    )
    assert len(clf.protected_) == {"found": 2, "nothing": 0}.get(str(protect), len(OWN))
    rows = clf.groups_[clf.groups_["group"] == "protected"]
    named = {group.rule.text for group in clf.named_groups_}
    assert set(rows["rule"]) == {rule.text for rule in clf.protected_} - named
    assert not rows["named"].any()
    assert rows["p_value"].isna().all()
    split = score <= clf.calibration_.sample.split_thresholds(clf.alpha_)
    for row in rows.to_dict("records"):
        inside = Rule.parse(row["rule"]).inside(cal.X[1000:])
        assert row["n_calibration"] == inside.sum()
        if inside.any():
            assert row["coverage"] == split[inside].mean()
            assert np.isfinite(row["threshold"])
    alone = made(world, protect="nothing").conformalize(
        cal.X[1000:], cal.y[1000:], X_learn=cal.X[:1000], y_learn=cal.y[:1000]
    )
    np.testing.assert_array_equal(alone.thresholds_, clf.thresholds_)
    assert (clf.predict_set(test.X) >= alone.predict_set(test.X)).all()
    assert alone.named_groups_ == clf.named_groups_  # what is named does not depend on it
    if protect == "found":  # named groups may be protected
        again = made(world, protect=list(clf.named_groups_)).conformalize(cal.X, cal.y)
        assert set(again.protected_) == {group.rule for group in clf.named_groups_}
    same = {"X": cal.X[1000:], "y": cal.y[1000:]}  # the rows that calibrated change nothing
    np.testing.assert_array_equal(clf.recalibrated(**same).predict_p(test.X), clf.predict_p(test.X))
    if protect == "found":  # of other named groups, the rows are not known
        pd.testing.assert_frame_equal(clf.recalibrated(**same).groups_, clf.groups_)


@pytest.mark.filterwarnings("ignore::fareg.FaregWarning")
def test_a_found_group_of_too_few_calibration_rows_is_not_protected(world):
    _, cal, test = world
    clf, learn = made(world), {"X_learn": cal.X, "y_learn": cal.y}
    many = clf.conformalize(test.X, test.y, **learn).protected_
    assert [rule.inside(test.X[:24]).sum() < 9 for rule in many] == [True, True]
    few = clf.conformalize(test.X[:24], test.y[:24], **learn)
    assert few.protected_ == ()
    own = made(world, protect=list(many)).conformalize(test.X[:24], test.y[:24])
    assert own.protected_ == many


# --- learners ---


@pytest.mark.parametrize(
    "learner",
    [
        RandomForestRegressor(n_estimators=30, min_samples_leaf=20),
        DecisionTreeRegressor(min_samples_leaf=50),
        NetworkLearner(epochs=20, delta=0.4),
    ],
    ids=lambda learner: type(learner).__name__,
)
def test_any_regressor_may_learn_who_is_disadvantaged(world, learner):
    _, cal, test = world
    clf = made(world, learner=learner).conformalize(cal.X, cal.y)
    (model,) = clf.disadvantage_.models
    assert type(model) is type(learner)
    assert not hasattr(learner, "n_features_in_")  # a copy was fitted
    rank = clf.predict_group(test.X)
    assert rank[test.group].mean() > rank[~test.group].mean() + 0.1
    np.testing.assert_array_equal(clf.predict_set(test.X), clf.predict_p(test.X) > clf.alpha_)
    again = made(world, learner=learner).conformalize(cal.X, cal.y)
    np.testing.assert_array_equal(again.predict_set(test.X), clf.predict_set(test.X))


# --- new rows, the same levels and groups ---


def fitted_anew(clf, rows, alpha):
    """Return the calibration of these rows with the levels and groups of a classifier."""
    first, *others = clf.calibration_.parts
    options = {"label_conditional": clf.label_conditional}
    levels = LevelThresholds.fit(first.levels, rows, alpha, **options)
    return Union(
        (levels, *(type(part).fit(part.groups, rows, alpha, **options) for part in others))
    )


@pytest.mark.parametrize("label_conditional", [False, True])
@pytest.mark.parametrize("with_clusters", [False, True])
@pytest.mark.filterwarnings("ignore::fareg.FaregWarning")
def test_recalibrated_is_fitted_anew_with_the_same_levels(world, label_conditional, with_clusters):
    _, cal, test = world
    clf = made(world, label_conditional=label_conditional)
    clf.conformalize(cal.X[:1000], cal.y[:1000])
    sets, groups = clf.predict_set(test.X), clf.groups_
    X, y = test.X[:1200], test.y[:1200].copy()
    y[:30] = 99  # a label that the model does not know
    clusters = np.arange(1200) // 3 if with_clusters else None
    new = clf.recalibrated(X, y, clusters=clusters)
    rows = clf.labelled_rows(X, y)
    rows = replace(rows, clusters=clusters)
    assert (rows.y < 0).sum() == 30
    assert np.isinf(rows.score[:30]).all()
    expected, batch = fitted_anew(clf, rows, clf.alpha_), batch_of(clf, test.X)
    np.testing.assert_array_equal(new.calibration_.thresholds(batch), expected.thresholds(batch))
    np.testing.assert_array_equal(new.predict_p(test.X), expected.pvalues(batch))
    np.testing.assert_array_equal(new.predict_set(test.X), new.predict_p(test.X) > clf.alpha_)
    assert new.n_calibration_ == 1200
    assert new.n_calibration_clusters_ == (400 if with_clusters else None)
    assert ("cluster" in new.promise_) == with_clusters
    assert new.named_groups_ == clf.named_groups_
    levels = new.groups_[new.groups_["rule"] == ""]
    n_rows = 400 if with_clusters else 1200
    assert levels["n_calibration"].sum() == n_rows - label_conditional * sum(
        rows.y[rows.independent_rows()] < 0
    )
    # the classifier that was asked is as it was
    np.testing.assert_array_equal(clf.predict_set(test.X), sets)
    pd.testing.assert_frame_equal(clf.groups_, groups)


def test_recalibration_warns_of_unknown_labels_and_of_too_few_rows(world, fitted):
    _, _, test = world
    y = test.y[:400].copy()
    y[:80] = 99
    with pytest.warns(FaregWarning, match="promised 0.9, at most 0.1 of every"):
        assert fitted.recalibrated(test.X[:400], y).predict_set(test.X).all()
    with pytest.warns(FaregWarning, match="fewer than 9 calibration points for disadvantage level"):
        few = fitted.recalibrated(test.X[:5], test.y[:5])
    assert few.predict_set(test.X).all()
    with pytest.raises(FaregError, match="must have the same number of rows"):
        fitted.recalibrated(test.X, test.y[:-1])


def test_recalibrated_rows_keep_the_promise_for_everyone_the_worst_off_and_the_group(world):
    """Over draws of 500 rows, by the mean of many coverages; the worst off hold the group."""
    _, cal, test = world
    clf = made(world, protect=[Rule.parse("Color = Red")]).conformalize(cal.X, cal.y)
    rng, rates = np.random.default_rng(0), []
    batch, n = batch_of(clf, test.X), len(test.y)
    everyone, red = np.ones(n, dtype=bool), (test.X["Color"] == "Red").to_numpy()
    worst = clf.predict_level(test.X) >= len(clf.thresholds_) // 2
    for _ in range(20):
        own, others = np.split(rng.permutation(n), [500])
        new = clf.recalibrated(test.X.iloc[own], test.y[own])
        covered = is_covered(test.y, batch.scores <= new.calibration_.thresholds(batch))
        rates.append([covered[others][who[others]].mean() for who in (everyone, worst, red)])
    spread = np.sqrt(0.09 / 250 / 20 + 0.09 / 1000)  # about 250 rows calibrate the halves
    assert (np.mean(rates, axis=0) > 0.9 - 3 * spread).all()


# --- the picture ---


def test_plot_levels_draws_the_numbers_of_coverage_by_level(world, fitted, same_rows_split):
    _, _, test = world
    figure = fitted.plot_levels(test.X, test.y)
    left, right = figure.axes
    levels, n_levels = fitted.predict_level(test.X), len(fitted.thresholds_)
    np.testing.assert_array_equal(left.lines[0].get_ydata(), fitted.thresholds_)
    drawn = dict(zip(*right.get_legend_handles_labels()[::-1], strict=True))
    for name, clf in (("FaReG", fitted), ("split conformal", same_rows_split)):
        covered = is_covered(test.y, clf.predict_set(test.X))
        table = coverage_by_level(levels, covered, n_levels=n_levels)
        shown = drawn[name].lines[0].get_ydata().astype(float)
        np.testing.assert_allclose(shown, table["coverage"].dropna())
    assert any(line.get_ydata()[0] == pytest.approx(0.9) for line in right.lines)
    assert all(tick == round(tick) for ax in figure.axes for tick in ax.get_xticks())


# --- hard tables, few rows ---


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
@pytest.mark.parametrize(("n", "label_conditional"), [(20, False), (61, True), (200, False)])
@pytest.mark.parametrize("sensitive", [None, ["a"], ["constant"], ["b", "many"]])
def test_hard_tables_get_an_answer(n, sensitive, label_conditional):
    X, y = mixed(2 * n)
    clf = FaReGClassifier(
        sensitive_features=sensitive,
        label_conditional=label_conditional,
        protect=[Rule.parse("a = x")] if sensitive == ["a"] else "found",
        random_state=0,
    ).fit(X, y)
    assert clf.predict_set(X).shape == (2 * n, 3)
    shape = (2 * n, 3) if label_conditional else (2 * n,)
    assert clf.predict_group(X).shape == clf.predict_level(X).shape == shape
    assert np.isfinite(clf.predict_p(X)).all()
    assert np.isfinite(clf.predict_group(X)).all()
    assert np.isfinite(clf.explain(X)).all()


class Pairs(DecisionTreeRegressor):
    """Predicts two numbers per row."""

    def predict(self, X):
        return np.column_stack([super().predict(X)] * 2)


@pytest.mark.parametrize(
    ("parameter", "value", "sentence"),
    [
        ("learner", "network", "learner must be a scikit-learn regressor or None, got .network."),
        ("learner", DecisionTreeRegressor, "pass one such as RandomForestRegressor"),
        ("learner", Pairs(), "learner must predict one finite number per row"),
        ("learn_from", "both", "learn_from must be one of"),
        ("learn_from", "train", "needs rows to learn from: call fit"),
        ("n_levels", 0, "n_levels must be a whole number"),
        ("cv", 1, "cv must be a whole number"),
        ("sensitive_features", ["nobody"], "not a column of X"),
        ("protect", "everyone", '"found", "nothing", a rule or a list of rules, got .everyone.'),
        ("protect", ["Color = Red"], r"make a rule with Rule.parse\("),
        ("protect", Rule.parse("Colour = Red"), "^protect: .* has no column Colour; did you mean"),
        ("protect", [Rule.parse('"Feature 1" > 0.5')], "_features has no column Feature 1"),
        (
            "protect",
            [Rule.parse("Color = red")],
            r"^protect: no training or calibration row has Color = red; Color holds Blue, Red; did "
            r"you mean Red\?$",
        ),
    ],
)
def test_bad_parameters_get_one_clear_sentence(world, parameter, value, sentence):
    _, cal, _ = world
    clf = made(world, **{parameter: value})
    with pytest.raises(FaregError, match=sentence) as caught:
        clf.conformalize(cal.X, cal.y)
    assert "\n" not in str(caught.value)
    assert not hasattr(clf, "key_")
