"""A model file gives back the same classifier to the bit, or one clear error."""

import errno
import functools
import json
import os
import sys

import lightgbm
import numpy as np
import pandas as pd
import pytest
import xgboost
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import (
    RandomForestClassifier,
)
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import fareg
from fareg._encoding import one_hot_encoder, ordinal_encoder
from fareg._files import replacing
from fareg.persistence import describe
from fareg.scores import lac, raps
from saved_models import (
    CLASSIFIERS,
    DATA,
    SPECIAL,
    TRAINED,
    X_CAL,
    X_TEST,
    Y_CAL,
    X,
    Y,
    asked_with,
    assert_same,
    conformal,
    saved,
    special,
)


@pytest.fixture(scope="module")
def discovered():
    return conformal(fareg.FaReGClassifier)


@pytest.mark.parametrize("label_conditional", [False, True])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_every_classifier_comes_back_to_the_bit(name, label_conditional, tmp_path):
    clf = conformal(CLASSIFIERS[name], label_conditional=label_conditional)
    back = fareg.load(saved(clf, tmp_path))
    assert type(back) is type(clf)
    assert vars(back).keys() == vars(clf).keys()
    assert_same(clf, back)
    parts = ("estimator", "base", "learner")
    kept = {k: v for k, v in clf.get_params(deep=False).items() if k not in parts}
    assert {k: back.get_params(deep=False)[k] for k in kept} == kept
    assert repr(getattr(back, "learner", None)) == repr(getattr(clf, "learner", None))


@pytest.mark.parametrize("name", SPECIAL)
def test_special_classifiers_come_back_to_the_bit(name, tmp_path):
    clf = special(name, TRAINED, X_CAL, Y_CAL)
    path = saved(clf, tmp_path)
    assert describe(path)["untrusted"] == []
    back = fareg.load(path)
    assert vars(back).keys() == vars(clf).keys()
    assert type(back.calibration_) is type(clf.calibration_)
    table, beside = asked_with(name, TRAINED, X_TEST)
    assert_same(clf, back, table, **beside)


BOOSTERS = {  # read by libraries whose memory we cannot check
    "lightgbm": lightgbm.LGBMClassifier(n_estimators=8, verbose=-1),
    "xgboost": xgboost.XGBClassifier(n_estimators=8),
}


@pytest.mark.parametrize("name", BOOSTERS)
def test_boosters_of_other_libraries_come_back_to_the_bit_if_they_are_trusted(name, tmp_path):
    y = np.unique(Y, return_inverse=True)[1] if name == "xgboost" else Y
    model = make_pipeline(ordinal_encoder(), BOOSTERS[name]).fit(X[:800], y[:800])
    clf = fareg.SplitConformalClassifier(FrozenEstimator(model), random_state=0)
    clf.conformalize(X_CAL, y[800:2000])
    with pytest.warns(fareg.FaregWarning, match=f"trusted=.*{name}"):
        path = saved(clf, tmp_path)
    needed = describe(path)["untrusted"]
    assert needed
    with pytest.raises(fareg.FaregError, match=f"not trusted: .*{name}.*runs their code"):
        fareg.load(path)
    assert_same(clf, fareg.load(path, trusted=needed))


def test_flags_and_dates_are_still_called_so(tmp_path):
    table = X_CAL.assign(
        hard=DATA.group[800:2000],
        born=pd.Timestamp("1980-01-31") + pd.to_timedelta(np.arange(1200) % 3, "D"),
    )
    model = make_pipeline(one_hot_encoder(), LogisticRegression()).fit(table, Y_CAL)
    clf = fareg.PartialConformalClassifier(
        FrozenEstimator(model), sensitive_features=["hard", "born"]
    )
    back = fareg.load(saved(clf.conformalize(table, Y_CAL), tmp_path))
    assert [[own.label(k) for k in range(len(own.values))] for own in back.levels_] == [
        ["hard=False", "hard=True"],
        ["born=1980-01-31", "born=1980-02-01", "born=1980-02-02"],
    ]


def test_a_classifier_that_trained_its_estimator_keeps_the_untrained_one(tmp_path):
    clf = fareg.SplitConformalClassifier(RandomForestClassifier(5), random_state=0)
    numbers = X.select_dtypes("number")
    clf.fit(numbers, Y)
    back = fareg.load(saved(clf, tmp_path))
    assert_same(clf, back, numbers)
    assert not hasattr(back.estimator, "estimators_")
    assert back.estimator.n_estimators == 5


@pytest.mark.parametrize("labels", ["int", "bool", "str", "object"])
def test_labels_keep_their_type(labels, tmp_path):
    y = {
        "int": np.arange(400) % 3,
        "bool": np.arange(400) % 2 == 0,
        "str": np.array(["é", "b|c", "汉"])[np.arange(400) % 3],
        "object": pd.Series(["a", "b"] * 200, dtype=object),
    }[labels]
    table = np.random.default_rng(0).normal(size=(400, 3))
    clf = fareg.SplitConformalClassifier(LogisticRegression(), random_state=0).fit(table, y)
    back = fareg.load(saved(clf, tmp_path))
    assert back.classes_.dtype == clf.classes_.dtype
    assert_same(clf, back, table)


def test_scores_of_the_package_are_stored_by_name(tmp_path):
    for score in ("lac", lac, functools.partial(raps, penalty=0.1)):
        clf = conformal(conformity_score=score)
        assert_same(clf, fareg.load(saved(clf, tmp_path)))


def own_score(proba, u):
    return 1 - proba


@pytest.mark.parametrize(
    ("parameter", "value"),
    [("conformity_score", own_score), ("sensitive_features", lambda table: table[["Color"]])],
)
def test_own_functions_are_refused_in_words(parameter, value, tmp_path):
    clf = conformal(fareg.PartialConformalClassifier, **{parameter: value})
    with pytest.raises(fareg.FaregError, match=rf"cannot save {parameter}=.*holds no code"):
        fareg.save(clf, tmp_path / "m.fareg")
    assert os.listdir(tmp_path) == []


class OwnModel(ClassifierMixin, BaseEstimator):
    def fit(self, X, y):
        self.classes_, counts = np.unique(y, return_counts=True)
        self.shares_ = counts / counts.sum()
        return self

    def predict_proba(self, X):
        return np.tile(self.shares_, (len(X), 1))

    def predict(self, X):
        return np.repeat(self.classes_[self.shares_.argmax()], len(X))


def test_unknown_types_are_refused_by_name(tmp_path):
    clf = conformal(estimator=OwnModel().fit(X, Y))
    name = f"{OwnModel.__module__}.OwnModel"
    sys.modules.setdefault(OwnModel.__module__, sys.modules[__name__])
    with pytest.warns(fareg.FaregWarning, match=f"trusted=.*{name}"):
        path = saved(clf, tmp_path)
    with pytest.raises(fareg.FaregError, match=f"not trusted: {name}"):
        fareg.load(path)
    assert_same(clf, fareg.load(path, trusted=[name]))
    assert_same(clf, fareg.load(path, estimator=clf.estimator_))
    with pytest.raises(fareg.FaregError, match="list of type names"):
        fareg.load(path, trusted=name)


def test_an_estimator_that_cannot_be_stored_is_left_out_in_words(tmp_path):
    model = make_pipeline(
        FunctionTransformer(lambda table: table.select_dtypes("number")), LogisticRegression()
    ).fit(X, Y)
    clf = conformal(estimator=model)
    with pytest.warns(fareg.FaregWarning, match="left out of the file.*estimator=model"):
        path = saved(clf, tmp_path)
    with pytest.raises(fareg.FaregError, match="holds no estimator"):
        fareg.load(path)
    assert_same(clf, fareg.load(path, estimator=model))


def test_without_its_estimator_a_file_asks_for_the_right_one(discovered, tmp_path):
    path = saved(discovered, tmp_path, include_estimator=False)
    assert not describe(path)["has_estimator"]
    assert describe(path)["needs_estimator"]
    with pytest.raises(fareg.FaregError, match=r"load\(path, estimator=model\)"):
        fareg.load(path)
    assert_same(discovered, fareg.load(path, estimator=FrozenEstimator(TRAINED)))
    other = make_pipeline(one_hot_encoder(), LogisticRegression()).fit(X, DATA.group)
    with pytest.raises(fareg.FaregError, match="has classes"):
        fareg.load(path, estimator=other)
    with pytest.raises(fareg.FaregError, match="takes 2 features"):
        fareg.load(path, estimator=LogisticRegression().fit(np.ones((len(Y), 2)), Y))
    with pytest.raises(fareg.FaregError, match="must be a fitted classifier"):
        fareg.load(path, estimator="model")


def test_only_fitted_classifiers_of_the_package_are_saved(tmp_path):
    with pytest.raises(fareg.FaregError, match="not conformalized yet"):
        fareg.save(fareg.FaReGClassifier(), tmp_path / "m.fareg")
    with pytest.raises(fareg.FaregError, match="takes a classifier of fareg"):
        fareg.save(TRAINED, tmp_path / "m.fareg")


def test_describe_tells_without_loading(discovered, tmp_path):
    told = describe(saved(discovered, tmp_path, metadata={"target": "y", "n": np.int64(3)}))
    assert told["class"] == "FaReGClassifier"
    assert told["columns"] == list(X.columns)
    assert told["classes"] == [str(label) for label in discovered.classes_]
    assert told["parameters"]["confidence_level"] == 0.9
    assert told["metadata"] == {"target": "y", "n": 3}
    assert [group["rule"] for group in told["groups"]] == list(discovered.groups_["rule"])
    json.dumps(told, allow_nan=False)


def test_the_same_model_gives_the_same_bytes(discovered, tmp_path):
    fareg.save(discovered, tmp_path / "a.fareg", include_estimator=False)
    fareg.save(discovered, tmp_path / "b.fareg", include_estimator=False)
    assert (tmp_path / "a.fareg").read_bytes() == (tmp_path / "b.fareg").read_bytes()


# --- files that cannot be written ------------------------------------------------------------


def test_a_failed_write_leaves_the_old_file(discovered, tmp_path, monkeypatch):
    path = saved(discovered, tmp_path)
    before = path.read_bytes()

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(fareg.FaregError, match="the disk is full"):
        fareg.save(discovered, path)
    monkeypatch.undo()
    monkeypatch.setattr(os, "replace", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        fareg.save(discovered, path)
    assert os.listdir(tmp_path) == ["model.fareg"]
    assert path.read_bytes() == before


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_really_full_disk_is_one_error(tmp_path):
    def write():
        with replacing(tmp_path / "out") as temporary:
            temporary.symlink_to("/dev/full")
            temporary.write_bytes(b"x" * 10)

    with pytest.raises(fareg.FaregError, match="the disk is full"):
        write()
    assert os.listdir(tmp_path) == []


def test_a_link_stays_and_its_file_is_replaced(discovered, tmp_path):
    (tmp_path / "far").mkdir()
    (tmp_path / "m.fareg").symlink_to(tmp_path / "far" / "m.fareg")  # a file that is not there yet
    for _ in range(2):
        fareg.save(discovered, tmp_path / "m.fareg")
        assert (tmp_path / "m.fareg").is_symlink()
        assert [path.is_symlink() for path in (tmp_path / "far").iterdir()] == [False]
    fareg.load(tmp_path / "far" / "m.fareg")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(fareg.FaregError, match="it exists and is not a regular file"):
        fareg.save(discovered, tmp_path / "pipe")
    assert (tmp_path / "pipe").is_fifo()


def test_bad_places_are_one_error(discovered, tmp_path):
    with pytest.raises(fareg.FaregError, match="it is a folder"):
        fareg.save(discovered, tmp_path)
    with pytest.raises(fareg.FaregError, match="there is no folder"):
        fareg.save(discovered, tmp_path / "no" / "m.fareg")
    with pytest.raises(fareg.FaregError, match="it is a folder"):
        fareg.load(tmp_path)
    with pytest.raises(fareg.FaregError, match="no such file"):
        fareg.load(tmp_path / "m.fareg")


# --- files that cannot be read ---------------------------------------------------------------


def test_neither_saving_nor_loading_ever_pickles(discovered, tmp_path, monkeypatch):
    import pickle

    def never(*args, **kwargs):
        raise AssertionError("pickle was used")

    for name in ("dump", "dumps", "load", "loads", "Unpickler", "Pickler"):
        monkeypatch.setattr(pickle, name, never)
    assert_same(discovered, fareg.load(saved(discovered, tmp_path)))
