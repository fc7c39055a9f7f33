"""Probabilities are enough: columns of the table itself stand for a model."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator

import fareg
from fareg import FaregError, ProbabilityColumns, SplitConformalClassifier
from fareg.classifiers import CLASSIFIERS
from fareg.persistence import describe
from registry import LEARNERS, short

LABELS = np.array(["low", "mid", "top"])
NAMES = [f"p_{label}" for label in LABELS]


def scored(n, seed=0, digits=None):
    """Return a table with probabilities and columns about people, and labels that follow them."""
    rng = np.random.default_rng(seed)
    proba = rng.dirichlet([1, 1, 1], n)
    y = LABELS[(rng.random((n, 1)) > proba.cumsum(axis=1)).sum(axis=1).clip(0, 2)]
    X = pd.DataFrame({"sex": rng.choice(["f", "m"], n), "age": rng.integers(18, 90, n)})
    X[NAMES] = proba if digits is None else proba.round(digits)
    return X, y


X, Y = scored(400)
X_NEW, Y_NEW = scored(150, seed=1)


def quiet(clf, X=X, y=Y, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fareg.FaregWarning)
        return clf.conformalize(X, y, **options)


def groups_in(clf):
    """Return the columns by which a fitted classifier tells people apart."""
    return list(clf._read_people(X_NEW, None))


@pytest.mark.parametrize("cls", CLASSIFIERS)
def test_columns_answer_like_a_model_that_reads_them(cls, reader):
    # the reader takes the first columns, so those about people stand behind
    table, new = (frame[[*NAMES, "sex", "age"]] for frame in (X, X_NEW))
    common = {"sensitive_features": ["sex", "age"], "random_state": 0}
    model = quiet(short(cls, reader(tuple(LABELS)), **common), table)
    clf = quiet(short(cls, ProbabilityColumns(NAMES), **common), table)
    np.testing.assert_array_equal(clf.predict_set(new), model.predict_set(new))
    np.testing.assert_array_equal(clf.predict(new), model.predict(new))
    np.testing.assert_array_equal(clf.classes_, LABELS)


@pytest.mark.parametrize("cls", CLASSIFIERS)
def test_columns_of_probabilities_define_no_groups_and_need_no_training(cls):
    clf = short(cls, ProbabilityColumns(NAMES), random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fareg.FaregWarning)
        clf.fit(X, Y)
        assert not clf._has_groups or groups_in(clf) == ["sex", "age"]
        np.testing.assert_array_equal(clf.predict_set(X_NEW), quiet(clone(clf)).predict_set(X_NEW))
    assert clf.n_calibration_ == (len(Y) // 2 if cls in LEARNERS else len(Y))
    ids = np.repeat(np.arange(100), 4)  # clusters mean the same in both verbs
    sets = quiet(clone(clf), clusters=ids).predict_set(X_NEW)
    np.testing.assert_array_equal(clone(clf).fit(X, Y, clusters=ids).predict_set(X_NEW), sets)


@pytest.mark.parametrize(
    "columns",
    [
        ProbabilityColumns(dict(zip(LABELS.tolist(), NAMES, strict=True))),
        ProbabilityColumns(NAMES),
        ProbabilityColumns(prefix="p_"),
        ProbabilityColumns({"low": 2, "mid": 3, "top": 4}),
        ProbabilityColumns({"low": -3, "mid": "p_mid"}, rest="top"),
        FrozenEstimator(ProbabilityColumns(NAMES)),
    ],
    ids=["dict", "list", "prefix", "positions", "rest", "frozen"],
)
def test_ways_to_name_columns(columns, tmp_path):
    clf = quiet(SplitConformalClassifier(columns, random_state=0))
    np.testing.assert_array_equal(clf.classes_, LABELS)
    np.testing.assert_allclose(clf.predict_proba(X_NEW), X_NEW[NAMES], atol=1e-15)
    fareg.save(clf, tmp_path / "m.fareg")
    told = describe(tmp_path / "m.fareg")  # plain values, and nothing to trust
    assert (told["has_estimator"], told["needs_estimator"], told["untrusted"]) == (False, False, [])
    back = fareg.load(tmp_path / "m.fareg")
    np.testing.assert_array_equal(back.predict_set(X_NEW), clf.predict_set(X_NEW))
    assert repr(back.estimator) == repr(clf.estimator)
    with pytest.raises(FaregError, match="load it without estimator"):
        fareg.load(tmp_path / "m.fareg", estimator=ProbabilityColumns(NAMES))
    with pytest.raises(FaregError, match=r"^X has no column p_top; [^\n]*$"):
        clf.predict_set(X_NEW.drop(columns="p_top"))


def test_columns_without_a_table_that_was_fitted():
    values = X[NAMES].to_numpy()
    columns = ProbabilityColumns({"low": 0, "mid": 1, "top": 2})
    np.testing.assert_array_equal(columns.predict_proba(values), values)
    assert ProbabilityColumns(["p_mid", "p_min"]).classes_.tolist() == ["mid", "min"]
    assert ProbabilityColumns(["low", "lower"]).classes_.tolist() == ["low", "lower"]
    table = pd.DataFrame({"p_yes": [0.2, 0.9], "x": [1, 2]})
    columns = ProbabilityColumns({"yes": "p_yes"}, rest="no")
    np.testing.assert_allclose(columns.predict_proba(table), [[0.2, 0.8], [0.9, 0.1]])
    assert columns.classes_.tolist() == ["yes", "no"]


def test_labels_take_the_type_they_have_in_y():
    numbers = np.searchsorted(LABELS, Y)
    table = X.set_axis([*X.columns[:2], "p_0", "p_1", "p_2"], axis=1)
    for columns in (
        ProbabilityColumns(["p_0", "p_1", "p_2"]),
        ProbabilityColumns(prefix="p_"),
        ProbabilityColumns({"0": "p_0", "1": "p_1"}, rest="2"),
    ):
        clf = quiet(SplitConformalClassifier(columns), table, numbers)
        assert clf.classes_.tolist() == [0, 1, 2]
        assert clf.predict(table).dtype.kind == "i"


def test_rounded_probabilities_are_divided_by_their_sum():
    rounded, y = scored(400, digits=2)
    sums = rounded[NAMES].sum(axis=1)
    assert sums.min() < 0.995 < 1.005 < sums.max()
    clf = quiet(SplitConformalClassifier(ProbabilityColumns(NAMES), random_state=0), rounded, y)
    np.testing.assert_allclose(clf.predict_proba(rounded).sum(axis=1), 1, atol=1e-12)
    exact = quiet(SplitConformalClassifier(ProbabilityColumns(NAMES), random_state=0))
    np.testing.assert_array_equal(exact.predict_proba(X), X[NAMES])


def spoilt(column, values, rows=slice(None)):
    table = X.copy()
    table.loc[table.index[rows], column] = values
    return table


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (X.drop(columns="p_mid"), "names 'p_mid', which is not a column of X; columns: sex, age"),
        (X.assign(**X[NAMES] * 100), "sum to 1, got 100 in row 0 and 399 more; divide perc"),
        (X.assign(**np.log(X[NAMES])), "not logits: apply softmax"),
        (spoilt("p_low", np.nan, [7, 9]), "got nan in row 7 and 1 more; drop the rows with NaN"),
        (spoilt("p_low", 3.0, [5]), "got .* in row 5; pass normalised probabilities"),
        (X.assign(p_low="much"), "must hold numbers, got .much.; write 0.5"),
        (X.assign(p_low=["0.5"] * 399 + ["50%"]), "must hold numbers, got .50%.; write 0.5"),
        (X.assign(p_low="0.5"), r"got .0.5.; .* convert the columns with astype\(float\)"),
        (X.assign(p_low=np.datetime64("NaT", "us")), "must hold numbers, got None; write 0.5"),
        (X[:0], "at least one row, got 0"),
    ],
    ids=["missing", "percent", "logits", "nan", "sum", "text", "one", "spelled", "dates", "empty"],
)
def test_bad_columns_are_refused_with_the_fix(table, message):
    clf = SplitConformalClassifier(ProbabilityColumns(NAMES))
    with pytest.raises(FaregError, match=message):
        clf.conformalize(table, Y[: len(table)])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (ProbabilityColumns(), "needs either columns or prefix"),
        (ProbabilityColumns([]), "names no columns"),
        (ProbabilityColumns(prefix="q_"), "names no columns, got 'q_'"),
        (ProbabilityColumns([2, 3, 4]), r"give positions their labels: .*\{label: position\}"),
        (ProbabilityColumns({"low": "p_low", "mid": "p_low"}), "names p_low twice"),
        (ProbabilityColumns({"low": "p_low", "mid": "p_mid"}, rest="low"), "distinct labels"),
        (ProbabilityColumns({"low": "p_low", 1: "p_mid"}), "labels of one type"),
        (ProbabilityColumns({"a": "p_low", "b": "p_mid", "c": "p_top"}), "its classes are a, b, c"),
        (ProbabilityColumns(["sex", "age"]), "none is a label of y"),
        (ProbabilityColumns({"low": "p_low"}), r"\{'low': 'p_low'\}, rest="),
    ],
)
def test_bad_names_are_refused_with_the_fix(columns, message):
    with pytest.raises(FaregError, match=message):
        quiet(SplitConformalClassifier(columns))


def test_sensitive_features_cannot_name_probabilities():
    for chosen in (["sex", "p_low"], lambda table: table[["p_low"]]):
        clf = fareg.PartialConformalClassifier(ProbabilityColumns(NAMES), sensitive_features=chosen)
        with pytest.raises(FaregError, match="must not hold columns of probabilities, got p_low"):
            quiet(clf)
    with pytest.raises(FaregError, match="X holds only probabilities"):
        quiet(fareg.PartialConformalClassifier(ProbabilityColumns(NAMES)), X[NAMES])


def test_columns_are_a_classifier_of_scikit_learn():
    columns = ProbabilityColumns(NAMES)
    assert list(clone(columns).fit(X).feature_names_in_) == list(X)
    assert clone(columns).get_params() == columns.get_params()
    assert columns.__sklearn_tags__().estimator_type == "classifier"
    assert columns.score(X, Y) == np.mean(columns.predict(X) == Y)
    with pytest.raises(FaregError, match=r"call fit\(X\) first"):
        ProbabilityColumns(prefix="p_").predict_proba(X)
