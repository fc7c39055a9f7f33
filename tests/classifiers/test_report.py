"""What a classifier says of itself on rows that it never saw, in Python as in the shell."""

import json
from copy import copy

import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator

import fareg
from fareg._encoding import gradient_boosting
from fareg.datasets import make_synthetic
from fareg.report import render_report
from registry import short_classifiers

DATA = make_synthetic(3400, random_state=0)
ENDS = {"train": (0, 1000), "learn": (1000, 2000), "calibrate": (2000, 3000), "test": (3000, 3400)}
PARTS = {part: slice(*ends) for part, ends in ENDS.items()}
X, y = ({k: of[rows] for k, rows in PARTS.items()} for of in (DATA.X, DATA.y))


@pytest.fixture(scope="module")
def model():
    boosting = gradient_boosting(0).set_params(histgradientboostingclassifier__max_iter=10)
    return FrozenEstimator(boosting.fit(X["train"], y["train"]))


@pytest.fixture(scope="module")
def split(model):
    clf = fareg.SplitConformalClassifier(model, random_state=0)
    return clf.conformalize(X["calibrate"], y["calibrate"])


@pytest.fixture(scope="module")
def clf(model):
    clf = fareg.FaReGClassifier(
        model,
        sensitive_features=list(DATA.sensitive),
        random_state=0,
    )
    return clf.conformalize(X["calibrate"], y["calibrate"], X_learn=X["learn"], y_learn=y["learn"])


@pytest.fixture(scope="module")
def told(clf):
    return clf.report(X["test"], y["test"], measures=False)


def test_split_sets_with_the_same_rows_stand_before(told, split, clf):
    np.testing.assert_array_equal(told.sets["before"], split.predict_set(X["test"]))
    np.testing.assert_array_equal(told.sets["after"], clf.predict_set(X["test"]))
    assert told.names == ("Split conformal", "FaReG")


def test_a_report_that_is_no_html_by_its_name_is_refused(clf, told, tmp_path):
    for write in (lambda path: clf.report(X["test"], y["test"], path), told.to_html):
        with pytest.raises(fareg.FaregError, match=r"must end in \.html or \.htm, got \.pdf"):
            write(tmp_path / "r.pdf")
    assert list(tmp_path.iterdir()) == []


def test_the_page_tells_the_story_of_ones_own_model(clf, told, tmp_path):
    path = tmp_path / "r.html"
    summary = clf.report(X["test"], y["test"], path, measures=False).to_dict()
    assert summary == told.to_dict() == json.loads(json.dumps(summary, allow_nan=False))
    page = path.read_text(encoding="utf-8")
    for heading in ("story-heading", "changes-heading", "residual-heading"):
        assert f'id="{heading}"' in page
    assert summary["verdict"]["label"] in page
    assert told.summary().startswith(summary["verdict"]["label"])
    assert repr(told).startswith("Comparison(names=('Split conformal', 'FaReG'), n_samples=400")


@pytest.mark.parametrize("name", sorted(short_classifiers()))
def test_every_classifier_reports_or_says_what_to_compare_with(name, model, split):
    clf = short_classifiers()[name].set_params(
        estimator=model, sensitive_features=["Color", "Gender"], random_state=0
    )
    clf.conformalize(X["calibrate"], y["calibrate"])
    options = {"measures": False}
    if name == "RectifiedConformalClassifier":  # it keeps residuals instead of scores
        with pytest.raises(fareg.FaregError, match="pass before="):
            clf.report(X["test"], y["test"])
        options["before"] = split
    told = clf.report(X["test"], y["test"], **options)
    assert told.names[0] == ("Split" if "before" in options else "Split conformal")
    assert "<html" in render_report(told.to_dict())
    hits = fareg.metrics.is_covered(y["test"], clf.predict_set(X["test"]), classes=clf.classes_)
    assert told.after["coverage"] == hits.mean()
    assert (told.to_dict()["residual"] is not None) == (name == "FaReGClassifier")
    assert ("before" in told.to_dict()) == (told.sets["before"] != told.sets["after"]).any()


def test_thresholds_of_new_rows_are_compared_with_split_ones_of_these_rows(clf, model):
    new = clf.recalibrated(X["calibrate"], y["calibrate"])
    split = fareg.SplitConformalClassifier(model, random_state=0)
    split.conformalize(X["calibrate"], y["calibrate"])
    told = new.report(X["test"], y["test"], measures=False)
    np.testing.assert_array_equal(told.sets["before"], split.predict_set(X["test"]))


def test_bad_rows_and_another_models_classes_are_refused(clf, split, model):
    with pytest.raises(fareg.FaregError, match="400"):
        clf.report(X["test"], y["test"][:-1])
    other = copy(split)
    other.classes_ = split.classes_[::-1]
    with pytest.raises(fareg.FaregError, match="same classes"):
        clf.report(X["test"], y["test"], before=other)
    with pytest.raises(fareg.FaregError, match="not conformalized yet"):
        fareg.FaReGClassifier(model).report(X["test"], y["test"])
