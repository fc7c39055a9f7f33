"""Real mixed tables, in pandas and polars, with estimators from other packages."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from lightgbm import LGBMClassifier
from sklearn.compose import make_column_transformer
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeClassifier
from xgboost import XGBClassifier

from fareg import (
    ExhaustiveConformalClassifier,
    FaregError,
    FaregWarning,
    PartialConformalClassifier,
    SplitConformalClassifier,
)
from fareg._encoding import ordinal_encoder

ALL = [SplitConformalClassifier, PartialConformalClassifier, ExhaustiveConformalClassifier]
SENSITIVE = ["color", "gender"]
pytestmark = pytest.mark.filterwarnings("ignore::fareg.FaregWarning")


def as_polars(X):
    return pl.from_pandas(X)


def as_polars_enum(X):
    return pl.from_pandas(X).with_columns(
        pl.col("gender").cast(pl.String).cast(pl.Enum(["Male", "Female"])),
        pl.col("color").cast(pl.Categorical),
    )


def as_arrow_dtypes(X):
    return as_polars(X).to_pandas(use_pyarrow_extension_array=True)


def as_nullable(X):
    return X.convert_dtypes()


def as_objects(X):
    return X.astype(object)


CONVERSIONS = [as_polars, as_polars_enum, as_arrow_dtypes, as_nullable, as_objects]


def encoded(model):
    """Put one-hot encoding and imputation before a model."""
    return make_pipeline(
        make_column_transformer(
            (OneHotEncoder(handle_unknown="ignore"), ["color", "gender", "smoker"]),
            (SimpleImputer(), ["age", "dose"]),
        ),
        model,
    )


MODELS = {
    "logistic": LogisticRegression(max_iter=1000),
    "xgboost": XGBClassifier(n_estimators=20, max_depth=3, n_jobs=1),
    "lightgbm": LGBMClassifier(n_estimators=20, num_leaves=7, n_jobs=1, verbose=-1),
}


@pytest.mark.parametrize("cls", ALL)
@pytest.mark.parametrize("convert", CONVERSIONS)
def test_the_same_sets_from_any_library(patients, cls, convert):
    X, y = patients
    tree = make_pipeline(ordinal_encoder(), DecisionTreeClassifier(max_depth=4, random_state=0))
    clf = cls(tree, sensitive_features=SENSITIVE, random_state=0)
    expected = clf.fit(X[:600], y[:600]).predict_p(X[600:])
    np.testing.assert_array_equal(clf.predict_p(convert(X[600:])), expected)
    refitted = clf.fit(convert(X[:600]), y[:600])
    np.testing.assert_array_equal(refitted.predict_p(convert(X[600:])), expected)
    np.testing.assert_array_equal(refitted.predict_p(X[600:]), expected)


@pytest.mark.parametrize("convert", CONVERSIONS)
def test_the_default_estimator_takes_any_library(patients, convert):
    X, y = patients
    clf = SplitConformalClassifier(random_state=0)
    expected = clf.fit(X, y).predict_p(X)
    np.testing.assert_array_equal(clf.predict_p(convert(X)), expected)


@pytest.mark.parametrize("cls", ALL)
@pytest.mark.parametrize("name", MODELS)
def test_estimators_of_other_packages(patients, cls, name):
    X, labels = patients
    classes, y = np.unique(labels, return_inverse=True)
    y = labels if name == "logistic" else y
    clf = cls(encoded(MODELS[name]), sensitive_features=SENSITIVE, random_state=0)
    sets = clf.fit(X[:700], y[:700]).predict_set(X[700:])
    codes = np.searchsorted(classes, labels[700:])
    assert sets.shape == (200, 3)
    assert sets[np.arange(200), codes].mean() > 0.8
    assert sets.mean() < 0.95
    trained = FrozenEstimator(encoded(MODELS[name]).fit(X[:300], y[:300]))
    frozen = cls(trained, sensitive_features=SENSITIVE, random_state=0)
    frozen.conformalize(X[300:700], y[300:700])
    np.testing.assert_array_equal(frozen.predict(X[700:]), trained.predict(X[700:]))
    assert frozen.predict_set(X[700:])[np.arange(200), codes].mean() > 0.8


@pytest.mark.parametrize("name", ["xgboost", "lightgbm"])
def test_bare_boosters_are_recognised_as_fitted(patients, name):
    X, labels = patients
    _, y = np.unique(labels, return_inverse=True)
    doses = X[["age", "dose"]]
    clf = SplitConformalClassifier(MODELS[name].fit(doses[:400], y[:400]), random_state=0)
    assert clf.conformalize(doses[400:], y[400:]).n_calibration_ == 500


def test_single_precision_probabilities_are_accepted(patients):
    X, labels = patients
    _, y = np.unique(labels, return_inverse=True)
    clf = SplitConformalClassifier(encoded(MODELS["xgboost"]), random_state=0).fit(X, y)
    assert clf.estimator_.predict_proba(X).dtype == np.float32
    np.testing.assert_array_equal(clf.predict_set(X), clf.predict_p(X) > clf.alpha_)


@pytest.mark.parametrize("convert", [lambda X: X, as_polars], ids=["pandas", "polars"])
def test_columns_must_be_those_of_calibration(patients, convert):
    X, y = patients
    clf = PartialConformalClassifier(sensitive_features=SENSITIVE, random_state=0)
    clf.fit(convert(X), y)
    assert clf.feature_names_in_.tolist() == list(X.columns)
    in_order = clf.predict_set(convert(X))
    np.testing.assert_array_equal(clf.predict_set(convert(X[X.columns[::-1]])), in_order)
    with pytest.raises(
        FaregError, match=r"(?s)Feature names seen at fit time, yet now missing.*dose"
    ):
        clf.predict_set(convert(X.drop(columns="dose")))
    more = convert(X.assign(extra=1, more="a"))
    fix = r"; leave out extra, more with X\[list\(clf.feature_names_in_\)\]$"
    with pytest.raises(FaregError, match=r"(?s)Feature names unseen at fit time.*extra.*" + fix):
        clf.predict_set(more)
    np.testing.assert_array_equal(clf.predict_set(more[list(clf.feature_names_in_)]), in_order)
    with pytest.raises(FaregError, match="at least one row"):
        clf.predict_set(convert(X[:0]))


def test_arrays_must_have_the_columns_of_calibration():
    X = np.random.default_rng(0).normal(size=(200, 3))
    clf = SplitConformalClassifier(LogisticRegression()).fit(X, X[:, 0] > 0)
    with pytest.raises(FaregError, match=r"X has 2 features, but .* is expecting 3"):
        clf.predict_set(X[:, :2])
    with pytest.raises(FaregError, match="Expected 2D array, got 1D"):
        clf.predict_set(X[0])


def test_duplicate_columns_are_refused(patients):
    X, y = patients
    twice = pd.concat([X, X[["dose"]]], axis=1)
    with pytest.raises(FaregError, match="unique column names"):
        SplitConformalClassifier().fit(twice, y)


def test_new_text_is_answered_not_refused(patients):
    X, y = patients
    clf = SplitConformalClassifier(random_state=0).fit(X, y)
    new = X[:3].assign(color=["Green", None, "Red"])
    assert clf.predict_set(new).shape == (3, 3)


def test_sensitive_features_may_be_a_function_of_the_frame(patients):
    X, y = patients
    by_name = PartialConformalClassifier(
        encoded(MODELS["logistic"]), sensitive_features=SENSITIVE, random_state=0
    )
    by_function = PartialConformalClassifier(
        encoded(MODELS["logistic"]),
        sensitive_features=lambda frame: frame[SENSITIVE],
        random_state=0,
    )
    by_position = PartialConformalClassifier(
        encoded(MODELS["logistic"]), sensitive_features=[1, -3], random_state=0
    )
    expected = by_name.fit(X, y).predict_p(X)
    np.testing.assert_array_equal(by_function.fit(X, y).predict_p(X), expected)
    np.testing.assert_array_equal(by_position.fit(X, y).predict_p(X), expected)


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame])
def test_texts_in_a_column_of_numbers_are_not_taken_for_missing_in_silence(make):
    rng = np.random.default_rng(0)
    age = rng.integers(18, 90, 200)
    clf = SplitConformalClassifier(random_state=0).fit(make({"age": age, "x": age}), age > 50)
    spelled = make({"age": [str(a) for a in age], "x": age})
    np.testing.assert_array_equal(
        clf.predict_set(spelled), clf.predict_set(make({"age": age, "x": age}))
    )
    words = [f"{a} years" for a in age]
    with pytest.raises(
        FaregError, match=r"age held numbers in fit, got 200 texts .* years'; convert"
    ):
        clf.predict_set(make({"age": words, "x": age}))
    with pytest.warns(FaregWarning, match=r"1 texts in 200 values .* count as missing"):
        clf.predict_set(make({"age": [words[0], *map(str, age[1:])], "x": age}))
