"""Classifiers to save, and what it means that one comes back: for the tests of model files."""

import functools
import os
import warnings

import numpy as np
import pandas as pd
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import fareg
import fareg.classifiers
from fareg._encoding import one_hot_encoder
from fareg.datasets import make_synthetic

DATA = make_synthetic(2400, random_state=0)
X, Y = DATA.X, DATA.y
X_CAL, Y_CAL, X_TEST = X[800:2000], Y[800:2000], X[2000:]
SENSITIVE = list(DATA.sensitive)
TRAINED = make_pipeline(one_hot_encoder(), LogisticRegression()).fit(X[:800], Y[:800])
CLASSIFIERS = {
    **{cls.__name__: cls for cls in fareg.classifiers.CLASSIFIERS},
    "paper": functools.partial(fareg.FaReGClassifier.paper, max_iter=30),
    "union on condcp": functools.partial(
        fareg.FaReGClassifier, construction="union", base=fareg.CondCPClassifier()
    ),
    "plcp as published": functools.partial(fareg.PLCPClassifier, calibration="reuse"),
}


def conformal(make=fareg.SplitConformalClassifier, estimator=TRAINED, **parameters):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fareg.FaregWarning)
        clf = make(FrozenEstimator(estimator), sensitive_features=SENSITIVE[:2], random_state=0)
        return clf.set_params(**parameters).conformalize(X_CAL, Y_CAL)


def answers(clf, rows):
    """Return everything that a classifier says about rows."""
    told = {"predict": clf.predict(rows), "predict_set": clf.predict_set(rows)}
    for name in (
        "predict_p",
        "predict_group",
        "predict_region",
        "predict_shift",
        "selected_features",
    ):
        if hasattr(clf, name):
            try:
                told[name] = getattr(clf, name)(rows)
            except fareg.FaregError as error:  # a base without p-values
                told[name] = np.array(str(error))
    return told


def assert_same(first, second, rows=X_TEST):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fareg.FaregWarning)
        ours, theirs = answers(first, rows), answers(second, rows)
    assert ours.keys() == theirs.keys()
    for name in ours:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
    if hasattr(first, "groups_"):
        pd.testing.assert_frame_equal(first.groups_, second.groups_, check_exact=True)
        a, b = first.explain(), second.explain()
        assert (a.rule, a.features) == (b.rule, b.features)
        pd.testing.assert_frame_equal(a.ranking, b.ranking, check_exact=True)
        pd.testing.assert_frame_equal(a.traversal, b.traversal, check_exact=True)


def saved(clf, tmp_path, **options):
    path = tmp_path / "model.fareg"
    fareg.save(clf, path, **options)
    assert os.listdir(tmp_path) == ["model.fareg"], "nothing else may be left behind"
    return path
