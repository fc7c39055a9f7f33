"""Real mixed tables, in pandas and polars, with estimators from other packages."""

import traceback

import numpy as np
import pandas as pd
import polars as pl
import pytest
from lightgbm import LGBMClassifier
from scipy.sparse import csr_array
from sklearn.base import clone
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
    FaReGClassifier,
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
    if cls is SplitConformalClassifier:  # so does the default estimator
        clf = cls(random_state=0).fit(X, y)
        np.testing.assert_array_equal(clf.predict_p(convert(X)), clf.predict_p(X))


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
    doses = X[["age", "dose"]].fillna(0)  # a bare model is recognised as fitted
    bare = cls(clone(MODELS[name]).fit(doses[:400], y[:400]), sensitive_features=["age"])
    assert bare.conformalize(doses[400:], y[400:]).n_calibration_ == 500
    assert frozen.predict_set(X[700:])[np.arange(200), codes].mean() > 0.8


@pytest.mark.parametrize("convert", [lambda X: X, as_polars], ids=["pandas", "polars"])
def test_columns_must_be_those_of_calibration(patients, convert):
    X, y = patients
    clf = PartialConformalClassifier(sensitive_features=SENSITIVE, random_state=0)
    clf.fit(convert(X), y)
    assert clf.feature_names_in_.tolist() == list(X.columns)
    in_order = clf.predict_set(convert(X))
    np.testing.assert_array_equal(clf.predict_set(convert(X[X.columns[::-1]])), in_order)
    with pytest.raises(FaregError, match=r"^X has no column dose; add what is missing to .*$"):
        clf.predict_set(convert(X.drop(columns="dose")))
    with pytest.raises(FaregError, match=r"^X has no column dose; did you mean doses\?$"):
        clf.predict_set(convert(X.rename(columns={"dose": "doses"})))
    more = convert(X.assign(extra=1, more="a"))
    fix = r"; leave out extra, more with X\[list\(clf.feature_names_in_\)\]$"
    with pytest.raises(
        FaregError, match=r"^X must have the \d columns of fit, got \d" + fix
    ) as told:
        clf.predict_set(more)
    assert "".join(traceback.format_exception(told.value)).count("Traceback") == 1
    np.testing.assert_array_equal(clf.predict_set(more[list(clf.feature_names_in_)]), in_order)
    with pytest.raises(FaregError, match="at least one row"):
        clf.predict_set(convert(X[:0]))


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


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
@pytest.mark.parametrize("dtype", [None, object])
def test_texts_in_a_column_of_dates_are_not_taken_for_missing_in_silence(zone, dtype):
    day = pd.Series(pd.date_range("2020-01-01", periods=200, tz=zone), dtype=dtype)
    X = pd.DataFrame({"day": day, "x": np.arange(200)})
    clf = SplitConformalClassifier(random_state=0).fit(X, np.arange(200) % 2)
    assert clf.column_kinds_["day"] == "date"
    with pytest.raises(FaregError, match=r"day held dates in fit, got 200 texts in 200 values"):
        clf.predict_set(X.assign(day=day.astype(str)))


NUMBERS = pd.DataFrame(np.random.default_rng(0).normal(size=(200, 3)), columns=["a", "b", "c"])
LABELS = (NUMBERS["a"] > 0).to_numpy()
MISSING = NUMBERS.mask(NUMBERS > 1)
NEEDS = r"the estimator LogisticRegression [\w ]+: "
STEP = "; mend the rows, or add a step that does, with sklearn.pipeline.make_pipeline"


@pytest.mark.parametrize("kind", [SplitConformalClassifier, FaReGClassifier])
@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (NUMBERS.set_axis(["a", "b", "b"], axis=1), "column names .* unique, got b twice; rename"),
        (NUMBERS["a"], r"got shape \(200,\); Reshape your data with np.reshape\(X, \(-1, 1\)\)"),
        (NUMBERS.to_numpy()[None], r"got shape \(1, 200, 3\); Reshape"),
        (None, "got NoneType; Reshape"),
        (NUMBERS[[]], r"X must have at least one column, got 0 feature\(s\)"),
        (NUMBERS[:0], "X must have at least one row"),
        (NUMBERS.set_axis(["a", "b", 1], axis=1), "of one type, got 'a', 'b', 1; make them texts"),
        ([[1, 2, 3], [1, 2]], "rows of one length, got a list; fill the missing values"),
        (NUMBERS.to_numpy() * 1j, "X must hold real numbers, got complex128"),
        (csr_array(NUMBERS.to_numpy()), r"got a sparse matrix; pass X.toarray\(\)"),
        (MISSING, NEEDS + "Input X contains NaN" + STEP),
    ],
    ids=str.split("twice 1d 3d none empty rowless names ragged complex sparse nan"),
)
def test_unusable_tables_are_refused_in_one_sentence(kind, table, sentence):
    model = LogisticRegression().fit(NUMBERS, LABELS)
    clf = kind(LogisticRegression(), random_state=0)
    given = kind(FrozenEstimator(model), random_state=0).conformalize(NUMBERS, LABELS)
    labels = LABELS[: len(table)] if isinstance(table, pd.DataFrame) else LABELS
    for refused in (
        lambda: clf.fit(table, labels),
        lambda: kind(model).conformalize(table, labels),
        lambda: given.predict_set(table),
        lambda: given.predict(table),
    ):
        with pytest.raises(FaregError, match=sentence) as told:
            refused()
        assert "\n" not in str(told.value)
    with pytest.raises(FaregError, match=r"X has 2 features, but .* is expecting 3"):
        given.predict_set(NUMBERS.to_numpy()[:, :2])


def test_a_table_has_the_columns_of_the_estimator_in_any_order():
    model = LogisticRegression().fit(NUMBERS, LABELS)
    clf = SplitConformalClassifier(model, random_state=0).conformalize(NUMBERS, LABELS)
    other = SplitConformalClassifier(model, random_state=0)
    other.conformalize(NUMBERS[["c", "a", "b"]], LABELS)
    np.testing.assert_array_equal(other.predict_proba(NUMBERS), clf.predict_proba(NUMBERS))
    with pytest.raises(FaregError, match=r"^X has no column b; add what is missing to a, c$"):
        other.conformalize(NUMBERS[["a", "c"]], LABELS)
    with pytest.raises(
        FaregError, match=r"leave out d with X\[list\(estimator.feature_names_in_\)"
    ):
        other.conformalize(NUMBERS.assign(d=1.0), LABELS)


def test_columns_are_not_blamed_for_what_an_estimator_says_about_values():
    model = make_pipeline(make_column_transformer(("passthrough", ["a"])), LogisticRegression())
    clf = SplitConformalClassifier(model.fit(NUMBERS, LABELS))
    clf.conformalize(NUMBERS.assign(d=1.0), LABELS)  # it takes further columns
    with pytest.raises(FaregError, match=r"estimator Pipeline refuses these rows: .* NaN; mend"):
        clf.conformalize(MISSING.assign(d=1.0), LABELS)


@pytest.mark.filterwarnings("ignore:X has feature names:UserWarning")
@pytest.mark.parametrize("convert", [lambda X: X, as_polars], ids=["pandas", "polars"])
def test_what_was_fitted_on_an_array_takes_the_columns_of_a_frame_by_position(convert):
    array = NUMBERS.to_numpy()
    clf = FaReGClassifier(LogisticRegression(), random_state=0).fit(array, LABELS)
    frame = convert(NUMBERS.set_axis(["c", "b", "a"], axis=1))
    np.testing.assert_array_equal(clf.predict_set(frame), clf.predict_set(array))
    np.testing.assert_array_equal(clf.predict_level(frame), clf.predict_level(array))
