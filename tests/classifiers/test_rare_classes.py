"""Classes of any size, down to one row, and targets that are none: an answer or one sentence."""

from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest

from fareg import SplitConformalClassifier
from fareg._encoding import gradient_boosting, lone_rows_twice
from fareg._validation import FaregWarning, InvalidInputError
from fareg.metrics import excess_risk
from fareg.persistence import describe
from fareg.report import render_report
from fareg.workflow import audit_file, fit_file, predict_file
from fareg.workflow._models import LIBRARIES, MODELS
from fareg.workflow._roles import check_target, check_training_labels, warn_of_leak

INSTALLED = [name for name in MODELS if name not in LIBRARIES or find_spec(name)]
LONE = ["Lone A", "lone|b", "Ünique", "d", "e", "f"]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A table in which six classes have one row each."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=400)
    y = np.where(x + rng.normal(size=400) > 0, "yes", "no").astype(object)
    y[: len(LONE)] = LONE
    path = tmp_path_factory.mktemp("rare") / "table.csv"
    pd.DataFrame({"x": x, "g": rng.choice(list("uvw"), 400), "y": y}).to_csv(path, index=False)
    return path


def quick_boosting(seed, rounds=3):
    return gradient_boosting(seed).set_params(histgradientboostingclassifier__max_iter=rounds)


def test_lone_rows_come_twice_and_others_once():
    X, y, _ = lone_rows_twice(np.arange(5.0)[:, None], list("aabca"))
    assert sorted(zip(y, X[:, 0], strict=True)) == [
        *[("a", 0.0), ("a", 1.0), ("a", 4.0)],
        *[("b", 2.0), ("b", 2.0), ("c", 3.0), ("c", 3.0)],
    ]
    X, y = np.ones((4, 1)), np.array([0, 0, 1, 1])
    np.testing.assert_array_equal(lone_rows_twice(X, y)[1], y)


def test_boosting_stops_early_with_a_class_of_one_row():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10_500, 1))
    y = (X[:, 0] > 0).astype(int)
    y[7] = 2
    model = quick_boosting(0).fit(X, y)
    assert model[-1].do_early_stopping_
    assert model.classes_.tolist() == [0, 1, 2]


def test_excess_risk_of_nearly_perfect_sets(monkeypatch):
    monkeypatch.setattr("fareg.metrics._excess_risk.N_ROUNDS", 3)
    covered = np.ones(21_000, dtype=bool)
    covered[11] = False  # in one fold, boosting learns from one miss in 10,500 rows
    X = np.random.default_rng(0).normal(size=(21_000, 1))
    # the level is 90% and nearly everyone is covered: a distance of almost a tenth
    assert excess_risk(X, covered, n_splits=2) == pytest.approx(0.1, abs=0.001)


def test_default_estimator_takes_a_class_of_one_training_row(monkeypatch):
    monkeypatch.setattr("fareg.classifiers._classifier.gradient_boosting", quick_boosting)
    X = np.random.default_rng(0).normal(size=(11_500, 1))
    y = np.where(X[:, 0] > 0, "b", "a").astype(object)
    y[3] = "lone"
    clf = SplitConformalClassifier(calibration_size=0.05, random_state=0).fit(X, y)
    assert clf.classes_.tolist() == ["a", "b", "lone"]  # with this seed, the row is in training


@pytest.mark.parametrize("name", INSTALLED)
def test_models_take_two_classes_of_which_one_has_one_row(name):
    X = pd.DataFrame({"x": np.arange(60.0), "g": list("uvw") * 20})
    y = np.array(["common"] * 59 + ["lone"], dtype=object)
    assert MODELS[name](0).fit(X, y).predict_proba(X).shape == (60, 2)


@pytest.mark.usefixtures("small_searches")
@pytest.mark.parametrize("name", INSTALLED)
def test_rare_classes_go_through_fit_predict_audit_and_report(name, table, tmp_path):
    model, answers = tmp_path / "m.fareg", tmp_path / "p.csv"
    with pytest.warns(FaregWarning) as caught:
        trial = fit_file(table, target="y", out=model, estimator=name)
    known = {str(label) for label in trial.clf.classes_}
    unseen = [label for label in LONE if label not in known]
    assert 0 < len(unseen) < len(LONE)  # some lone rows train, others do not
    notes = [str(w.message) for w in caught if issubclass(w.category, FaregWarning)]
    (told,) = [note for note in notes if note.startswith("labels without a training row")]
    assert all(f"{label} (1 row)" in told for label in unseen)
    (few,) = [note for note in notes if note.startswith("labels with few training rows")]
    assert all(f"{label} (1 row)" in few for label in set(LONE) & known)
    assert "<html" in render_report(trial.comparison.to_dict())
    trusted = describe(model)["untrusted"]  # boosters of other libraries
    assert predict_file(model, table, answers, trusted=trusted)["rows"] == 400
    result = audit_file(table, target="y", model=model, trusted=trusted)
    assert 0.5 < result.coverage <= 1 - len(unseen) / 400  # no set can contain these labels


def test_smallest_tables_are_fitted_by_every_model(tmp_path):
    path = tmp_path / "small.csv"
    pd.DataFrame({"x": range(20), "y": ["a", "b"] * 10}).to_csv(path, index=False)
    for name in INSTALLED:
        with pytest.warns(FaregWarning):
            trial = fit_file(path, target="y", out=tmp_path / "m.fareg", estimator=name)
        assert trial.n_test == 4


def test_training_rows_of_one_class_are_refused_by_name():
    with pytest.raises(InvalidInputError, match=r"one class only \(common\).* of lone \(1 row\)"):
        check_training_labels(["common"] * 50, ["common"] * 99 + ["lone"])


def test_whole_numbers_that_hardly_repeat_are_no_classes():
    amounts = pd.Series(np.arange(400) % 150, name="income")
    with pytest.raises(InvalidInputError, match="income has 150 different numbers in 400 rows"):
        check_target(amounts)
    with pytest.raises(InvalidInputError, match="150 different numbers"):
        check_target(amounts.astype(float))
    assert len(check_target("c" + amounts.astype(str))) == 400  # as text they are classes
    assert len(check_target(amounts, has_model=True)) == 400  # a model that is given knows them
    with pytest.warns(FaregWarning, match="40 different numbers and each is taken as a class"):
        check_target(pd.Series(np.arange(800) % 40, name="age"))


@pytest.mark.filterwarnings("error")
def test_few_whole_numbers_are_classes_without_a_word():
    assert check_target(pd.Series(np.arange(60) % 20, name="y")).dtype == np.int64


def test_a_perfect_model_is_suspected_of_a_leak(tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=300)
    frame = pd.DataFrame({"id": range(300), "noise": rng.integers(5, size=300), "y": y})
    frame["paid_later"] = np.where(y == 1, "late", "never")
    frame.to_csv(tmp_path / "leak.csv", index=False)
    with pytest.warns(FaregWarning, match=r"right on 100\.0% of the 60 test rows.*paid_later, "):
        fit_file(tmp_path / "leak.csv", target="y", out=tmp_path / "m.fareg")


@pytest.mark.filterwarnings("error")
def test_an_ordinary_accuracy_is_no_leak():
    warn_of_leak(pd.DataFrame({"x": [1, 2]}), [0, 1], 0.9994)


def test_more_classes_than_rows_held_out_for_early_stopping_are_learned():
    rng = np.random.default_rng(0)
    y = np.arange(10_100) % 1_100  # early stopping would hold out 1,010 rows
    model = quick_boosting(0, 1).fit(pd.DataFrame({"x": rng.normal(size=len(y))}), y)
    assert len(model.classes_) == 1_100
    assert model[-1].early_stopping == "auto"
