"""Weights for another population: where they come from, how they are used, what is refused."""

import numpy as np
import pandas as pd
import pytest

import fareg
from fareg import FaReGClassifier, FaregError, SplitConformalClassifier
from fareg.classifiers import CLASSIFIERS
from fareg.shift import STEPS, CovariateShift, KnownWeights, LabelShift
from people import people
from registry import short

N = 600
pytestmark = pytest.mark.filterwarnings("ignore::fareg.FaregWarning")


def table(n=N, seed=0):
    """Return people with weights, their labels and probabilities."""
    rng = np.random.default_rng(seed)
    X = people(n, seed).assign(weight=rng.integers(1, 5, n).astype(float))
    proba = rng.dirichlet([1, 1, 1], n)
    y = np.array(["a", "b", "c"])[(rng.random((n, 1)) > proba.cumsum(axis=1)).sum(axis=1)]
    return X, y, proba


def calibrated(shift, method=SplitConformalClassifier, **more):
    X, y, proba = table()
    clf = short(method, random_state=0, sensitive_features=["sex", "race"])
    return clf.conformalize(X, y, proba=proba, shift=shift, **more)


def test_sets_with_known_weights_are_those_of_the_definition():
    X, (X_new, _, proba_new) = table()[0], table(60, 1)
    clf = calibrated(KnownWeights("weight"))
    scores, known = clf.conformity_scores(X_new, proba=proba_new), clf.calibration_.sample
    w, new = X["weight"].to_numpy(), X_new["weight"].to_numpy()
    at_least = (w * (known.score >= scores[..., None])).sum(axis=2)
    p = (new[:, None] + at_least) / (new[:, None] + w.sum())
    found = clf.predict_p(X_new, proba=proba_new)
    assert (found >= p - 1e-12).all()  # weights of new rows are rounded up
    assert np.abs(found - p).max() < 0.1 * 4 / w.sum() + 1e-9
    assert np.array_equal(clf.predict_set(X_new, proba=proba_new), found > clf.alpha_)
    assert clf.shift_.effective_rows == pytest.approx(w.sum() ** 2 / (w**2).sum())
    assert "weights" in clf.promise_


@pytest.mark.parametrize("method", CLASSIFIERS)
def test_methods_take_weights_or_say_why_not(method):
    if not method._takes_weights:
        with pytest.raises(FaregError, match=f"no promise is proven for {method.__name__}"):
            calibrated(KnownWeights("weight"), method)
        return
    X, y, proba = table()
    weighted, plain = calibrated(KnownWeights("weight"), method), calibrated(None, method)
    assert not np.array_equal(weighted.predict_p(X, proba=proba), plain.predict_p(X, proba=proba))
    X, alike = X.assign(weight=2.0), []
    for shift in (KnownWeights("weight"), None):
        clf = short(method, random_state=0, sensitive_features=["sex", "race"])
        alike.append(clf.conformalize(X, y, proba=proba, shift=shift).predict_p(X, proba=proba))
    assert np.abs(alike[0] - alike[1]).max() < 0.01  # new rows weigh up to a tenth more
    with pytest.raises(FaregError, match="clusters with weights"):
        calibrated(KnownWeights("weight"), method, clusters=np.arange(N) // 2)


def test_weights_in_sensitive_features():
    X, y, proba = table()
    beside = X[["sex", "weight"]]
    clf = FaReGClassifier(random_state=0, sensitive_features=["sex"])
    clf.conformalize(
        X[["age"]], y, proba=proba, sensitive_features=beside, shift=KnownWeights("weight")
    )
    p = clf.predict_p(X[["age"]], proba=proba, sensitive_features=beside)
    assert p.shape == (N, 3)
    with pytest.raises(FaregError, match="pass them again"):
        clf.predict_p(X[["age"]], proba=proba)
    missing = pd.concat([beside[:5].assign(weight=np.nan), beside[5:]])
    with pytest.raises(FaregError, match="weights must be non-negative numbers, got nan"):
        clf.predict_set(X[["age"]], proba=proba, sensitive_features=missing)


@pytest.mark.parametrize(
    "shift",
    [KnownWeights("weight"), LabelShift({"a": 0.2, "b": 0.5, "c": 0.3}), "learned"],
)
@pytest.mark.parametrize("method", [SplitConformalClassifier, FaReGClassifier])
def test_model_files_keep_shifts(method, shift, tmp_path):
    if shift == "learned":
        shift = CovariateShift(columns=["sex", "age"]).fit(table()[0], table(seed=1)[0])
    clf = calibrated(shift, method)
    fareg.save(clf, tmp_path / "m.fareg")
    X, _, proba = table(200, 2)
    again = fareg.load(tmp_path / "m.fareg")
    assert np.array_equal(again.predict_p(X, proba=proba), clf.predict_p(X, proba=proba))
    assert again.shift_.effective_rows == clf.shift_.effective_rows


def test_new_thresholds_without_a_shift_weigh_nobody():
    X, y, proba = table(seed=3)
    first = calibrated(KnownWeights("weight"), FaReGClassifier)
    plain = first.recalibrated(X, y, proba=proba)
    assert plain.shift_ is None is plain.calibration_.sample.weights
    again = plain.recalibrated(*table()[:2], proba=table()[2], shift=KnownWeights("weight"))
    assert again.shift_ is not None
    assert first.shift_ is not None
    assert plain.shift_ is None


def test_weights_of_new_rows_are_rounded_up_by_less_than_a_tenth_or_one():
    clf = calibrated(KnownWeights("weight"))
    X = table()[0].assign(weight=np.geomspace(1e-9, 1e9, N))
    with fareg.accept_drift():
        rows = clf._checked_rows(X, table()[2])
    found = clf.shift_.of_new(rows.tables, 3)[:, 0]
    exact = X["weight"].to_numpy() / clf.shift_.unit
    inside = exact < STEPS[-1]
    assert (found[inside] >= exact[inside] * (1 - 1e-9)).all()
    assert (found[inside] <= np.maximum(1.1 * exact[inside] + 1, 1)).all()
    with fareg.accept_drift():
        assert clf.predict_set(X, proba=table()[2])[-1].all()  # as many as all others together


def test_learned_weights_see_interactions_and_the_weight_of_a_row_is_not_its_own():
    rng = np.random.default_rng(0)
    old, new = rng.integers(0, 2, (2, 6000, 2)).astype(float)
    same = new[:, 0] == new[:, 1]
    new = new[same | (rng.random(6000) < 1 / 3)]
    shift = CovariateShift().fit(old, new)
    clf = SplitConformalClassifier().conformalize(
        old, rng.choice(["a", "b"], 6000), proba=rng.dirichlet([1, 1], 6000), shift=shift
    )
    weights = clf.calibration_.sample.weights
    alike = old[:, 0] == old[:, 1]
    assert weights[alike].mean() / weights[~alike].mean() == pytest.approx(3, rel=0.15)
    assert clf.shift_.effective_rows == pytest.approx(shift.effective_rows, rel=1e-6)
    noise = np.column_stack([rng.normal(size=(500, 8)), np.arange(500) % 7])
    pure = CovariateShift().fit(noise[:250], noise[250:])
    assert pure.overlap == pytest.approx(1, abs=0.35)


def test_shares_of_labels_are_found_in_the_answers_of_the_model():
    rng = np.random.default_rng(1)

    def rows(n, share):
        y = rng.random(n) < share
        p = np.clip(rng.normal(np.where(y, 0.6, 0.4), 0.15), 0, 1)
        return np.where(y, "yes", "no"), np.column_stack([1 - p, p])

    y, proba = rows(20_000, 0.3)
    shift = LabelShift().fit(y, proba, rows(20_000, 0.8)[1])
    assert shift.shares["yes"] == pytest.approx(0.8, abs=0.02)
    weights = shift.of_labels((y == "yes").astype(int), np.array(["no", "yes"]))
    assert weights[:2] == pytest.approx([0.2 / 0.7, 0.8 / 0.3], abs=0.1)
    assert weights[2] == 1  # a label that nobody knows is as frequent as it was


def test_a_label_that_never_calibrated_and_now_occurs_is_in_every_set():
    X, y, proba = table()
    y = np.where(y == "c", "a", y)
    clf = SplitConformalClassifier(random_state=0)
    shift = LabelShift({"a": 0.4, "b": 0.4, "c": 0.2})
    clf.conformalize(X, y, proba=proba, classes=["a", "b", "c"], shift=shift)
    assert clf.predict_set(X, proba=proba)[:, 2].all()


@pytest.mark.parametrize(
    ("shift", "words"),
    [
        ("new people", "shift must be one of"),
        (KnownWeights("wait"), "not a column"),
        (KnownWeights("sex"), "weights must be non-negative numbers, got nan"),
        (KnownWeights("rare"), "effective rows of 600, and at least 100"),
        (KnownWeights("none"), "effective rows of 600"),
        (CovariateShift(), "call fit first"),
        (LabelShift(), "call fit"),
        (LabelShift({"a": 0.5, "b": 0.5}), "every label a share"),
        (LabelShift({"a": 0.5, "b": 0.5, "c": 0.5}), "their sum must be 1"),
        (LabelShift([0.2, 0.3, 0.5]), "every label a share"),
    ],
)
def test_refusals(shift, words):
    X, y, proba = table()
    X = X.assign(rare=np.arange(N) < 50, none=0.0)
    with pytest.raises(FaregError, match=words) as caught:
        SplitConformalClassifier().conformalize(X, y, proba=proba, shift=shift)
    assert "\n" not in str(caught.value)


SAME = np.full((N, 3), 1 / 3)
X = table()[0]


@pytest.mark.parametrize(
    ("fit", "words"),
    [
        (lambda: CovariateShift().fit(X, X[:20]), "X_new must have at least 50 rows"),
        (lambda: CovariateShift(clip=0.5).fit(X, X), "clip"),
        (lambda: CovariateShift().fit(X, X.drop(columns="age")), "X has no column"),
        (
            lambda: CovariateShift().fit(*(X.assign(day=np.arange(N) + k) for k in (0, N))),
            "of the new rows resemble calibration rows",
        ),
        (lambda: LabelShift().fit(table()[1], SAME, SAME), "do not distinguish the labels"),
        (lambda: LabelShift().fit(table()[1], SAME, SAME[:, :2] * 1.5), "a column for each"),
    ],
)
def test_learning_is_refused_where_it_cannot_work(fit, words):
    with pytest.raises(FaregError, match=words):
        fit()


def test_a_watch_of_weighted_sets_learns_from_its_first_rows_and_belongs_to_one_model(tmp_path):
    X, y, proba = table(seed=4)
    monitor = fareg.CoverageMonitor(calibrated(KnownWeights("weight")))
    summary = monitor.update(X[:150], y[:150], proba=proba[:150]).summary()
    assert summary.loc["everyone", "verdict"].startswith("learning")
    monitor.save(tmp_path / "s.json")
    with pytest.raises(FaregError, match="another model"):
        fareg.CoverageMonitor.load(tmp_path / "s.json", calibrated(None))
