"""Classifiers to save, and what it means that one comes back: for the tests of model files."""

import functools
import inspect
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
from fareg.calibration import Sample
from fareg.datasets import make_synthetic

DATA = make_synthetic(2400, random_state=0)
X, Y = DATA.X, DATA.y
X_CAL, Y_CAL, X_TEST = X[800:2000], Y[800:2000], X[2000:]
SENSITIVE = list(DATA.sensitive)
TRAINED = make_pipeline(one_hot_encoder(), LogisticRegression()).fit(X[:800], Y[:800])
CLASSIFIERS = {
    **{cls.__name__: cls for cls in fareg.classifiers.CLASSIFIERS},
    "paper": functools.partial(fareg.FaReGClassifier.paper, epochs=30),
    "paper on condcp": functools.partial(
        fareg.FaReGClassifier.paper, epochs=30, base=fareg.CondCPClassifier()
    ),
    "label by label": functools.partial(fareg.FaReGClassifier, label_conditional=True),
}


def conformal(make=fareg.SplitConformalClassifier, estimator=TRAINED, **parameters):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fareg.FaregWarning)
        clf = make(FrozenEstimator(estimator), sensitive_features=SENSITIVE[:2], random_state=0)
        return clf.set_params(**parameters).conformalize(X_CAL, Y_CAL)


def scored_elsewhere(clf, X, y):
    """Return the classifier with the thresholds of rows that were scored part by part."""
    rows = clf.conformalize(X, y).labelled_rows(X, y)
    places = clf.calibration_.places(rows)
    return clf.with_sample(Sample(rows.score, None, 1, None), places)


# Classifiers whose files hold what no class of classifiers needs by itself.
SPECIAL = {
    "recalibrated": lambda clf, X, y: clf.conformalize(X, y).recalibrated(X, y),
    "scored elsewhere": scored_elsewhere,
    "probability columns": lambda clf, X, y: clf.set_params(
        estimator=fareg.ProbabilityColumns(prefix="p_")
    ).conformalize(X, y),
    "probability arrays": lambda clf, X, y, proba: clf.set_params(estimator=None).conformalize(
        X, y, proba=proba
    ),
    "sensitive beside": lambda clf, X, y, sensitive_features: clf.conformalize(
        X, y, sensitive_features=sensitive_features
    ),
    "sensitive excluded": lambda clf, X, y: clf.set_params(
        estimator=clf.estimator.estimator, sensitive_features=["Color"]
    ).fit(X, y, exclude_sensitive=True),
}


def asked_with(name, model, X):
    """Return the table that a special classifier reads, and what it is given beside it."""
    proba = model.predict_proba(X)
    names = [f"p_{label}" for label in model.classes_]
    table = X.assign(**dict(zip(names, proba.T, strict=True)))
    return {
        "probability columns": (table, {}),
        "probability arrays": (X, {"proba": proba}),
        "sensitive beside": (X, {"sensitive_features": X[["Color", "Gender"]]}),
    }.get(name, (X, {}))


def special(name, model, X, y):
    """Return a fitted classifier of ``SPECIAL`` around a fitted model."""
    table, beside = asked_with(name, model, X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fareg.FaregWarning)
        clf = fareg.FaReGClassifier(FrozenEstimator(model), random_state=0)
        return SPECIAL[name](clf, table, y, **beside)


def answers(clf, rows, **beside):
    """Return everything that a classifier says about rows."""
    told = {}
    for name in (
        "predict",
        "predict_set",
        "predict_p",
        "predict_group",
        "predict_region",
        "predict_shift",
        "selected_features",
    ):
        if hasattr(clf, name):
            try:
                ask = getattr(clf, name)
                taken = beside.keys() & inspect.signature(ask).parameters
                told[name] = ask(rows, **{key: beside[key] for key in taken})
            except fareg.FaregError as error:  # a base without p-values
                told[name] = np.array(str(error))
    return told


def assert_same(first, second, rows=X_TEST, **beside):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fareg.FaregWarning)
        ours, theirs = answers(first, rows, **beside), answers(second, rows, **beside)
    assert ours.keys() == theirs.keys()
    for name in ours:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
    if hasattr(first, "groups_"):
        pd.testing.assert_frame_equal(first.groups_, second.groups_, check_exact=True)
        assert first.named_groups_ == second.named_groups_


def saved(clf, tmp_path, **options):
    path = tmp_path / "model.fareg"
    fareg.save(clf, path, **options)
    assert os.listdir(tmp_path) == ["model.fareg"], "nothing else may be left behind"
    return path
