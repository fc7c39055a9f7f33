"""Any table leads to an answer or to a FaregError, through fit, predict, files and audit.

A thousand random tables per run, for models, searches and training as small as it gets.
"""

import functools
import warnings
from datetime import date, time
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier

import fareg
from fareg._encoding import one_hot_encoder, ordinal_encoder
from fareg.workflow import audit_file, fit_file, predict_file
from fuzzing import cases
from registry import short_classifiers

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.usefixtures("small_searches"),
]
NAMES = st.one_of(
    st.text(min_size=0, max_size=6),
    st.sampled_from(["a", "a b", "x__y", "é汉", "missing", "=", "{}", " and ", "0", "x0", "[b]"]),
)
VALUES = {
    "float": st.floats(),
    "int": st.integers(-(2**63), 2**63 - 1),
    "huge": st.integers(-(10**30), 10**30),
    "small": st.integers(0, 2),
    "bool": st.booleans(),
    "text": st.text(max_size=4),
    "levels": st.sampled_from(["a", "b", "a b", "", "1", "1.0", "nan", "None", "汉"]),
    "gaps": st.sampled_from([None, "a", "b"]),
    "mixed": st.sampled_from([None, 1, 2.5, "a", True, "1"]),
    "missing": st.none(),
    "constant": st.just("same"),
    "date": st.datetimes(pd.Timestamp(1700, 1, 1), pd.Timestamp(2200, 1, 1)),
    "inf": st.sampled_from([np.inf, -np.inf, np.nan, 0.0, 1e308, -1e308]),
}


@st.composite
def tables(draw, min_rows=1, max_rows=60):
    n = draw(st.integers(min_rows, max_rows))
    names = draw(st.lists(NAMES, min_size=1, max_size=4))
    columns = []
    for _ in names:
        kind = draw(st.sampled_from(sorted(VALUES)))
        few = draw(st.lists(VALUES[kind], min_size=1, max_size=8))  # values repeat, as in real life
        rows = np.random.default_rng(draw(st.integers(0, 9))).integers(len(few), size=n)
        columns.append(pd.Series([few[k] for k in rows], dtype=object).infer_objects())
    frame = pd.concat(columns, axis=1)
    frame.columns = names  # perhaps twice the same
    if draw(st.booleans()):
        frame = frame.convert_dtypes()
    return frame


LABELS = st.one_of(
    st.sampled_from([["a", "b"], [0, 1, 2], [True, False], ["x"], [0.0, 1.0], ["é", "b|c"]]),
    st.lists(st.one_of(st.none(), st.text(max_size=3), st.floats(), st.integers()), min_size=1),
)
ESTIMATORS = {
    "logistic": make_pipeline(one_hot_encoder(), LogisticRegression(max_iter=5)),
    "tree": make_pipeline(ordinal_encoder(), DecisionTreeClassifier(max_depth=2)),
    "prior": DummyClassifier(),  # looks at no column: all the rest of a classifier still does
}
CLASSIFIERS = short_classifiers()


def labels_for(choices, n):
    picked = [choices[k] for k in np.random.default_rng(0).integers(len(choices), size=n)]
    return pd.Series(picked, dtype=object).infer_objects()


# --- fit -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CLASSIFIERS)
@cases(20)
@given(
    table=tables(),
    choices=LABELS,
    estimator=st.sampled_from(sorted(ESTIMATORS)),
    is_saved=st.sampled_from([True, False, False, False]),
)
@example(
    table=pd.DataFrame({"a": [np.inf, 1e308] * 20}),
    choices=["a", "b"],
    estimator="tree",
    is_saved=True,
)
def test_any_table_is_an_answer_or_a_fareg_error(
    name, table, choices, estimator, is_saved, tmp_path
):
    clf = CLASSIFIERS[name].set_params(estimator=ESTIMATORS[estimator], random_state=0)
    try:
        clf.fit(table, labels_for(choices, len(table)))
    except fareg.FaregError:
        return
    sets = clf.predict_set(table)
    assert sets.shape == (len(table), len(clf.classes_))
    assert (clf.predict_set(table[:1]) == sets[:1]).all()
    if is_saved:
        fareg.save(clf, tmp_path / "m.fareg")
        assert (fareg.load(tmp_path / "m.fareg").predict_set(table) == sets).all()


# --- predict: one model, thousands of tables that are not what it was fitted on ----------------


def healthy(n, seed=0):
    rng = np.random.default_rng(seed)
    days = pd.to_timedelta(rng.integers(0, 500, n), "D")
    return pd.DataFrame(
        {
            "number": rng.normal(size=n),
            "count": rng.integers(0, 4, n),
            "flag": rng.random(n) < 0.5,
            "city": rng.choice(["Kraków", "汉", "a b", ""], n),
            "day": pd.Timestamp("2020-01-01") + days,
            "gap": pd.Series(rng.choice(["x", "y", None], n), dtype=object),
            "level": pd.Categorical(rng.choice(["low", "high"], n)),
        }
    )


CELLS = {
    "missing": [None, np.nan, pd.NA, pd.NaT],
    "infinite": [np.inf, -np.inf, 0.0],
    "huge": [1e308, -1e308, 10**30, 2**63],
    "mixed": [None, 1, 2.5, "a", True, "1", "", b"x", 1j, Decimal("1.5")],
    "unicode": ["汉", "\u202e", "é\x00", "\U0001f600", "ı", "I"],
    "digits": ["1", "2.0", "1e5", "inf", "nan", "-0"],
    "empty": ["", " ", "\t"],
    "unseen": ["never seen", "nor this"],
    "dates": [pd.Timestamp("2020-01-01"), date(2021, 1, 1), pd.Timestamp("2020-01-01", tz="UTC")],
    "times": [time(1, 2), pd.Timedelta("1D"), pd.Period("2020-01"), pd.Interval(0, 1)],
    "strangers": [object(), len, int, (1, 2), frozenset({1})],
    "several": [[1, 2], {"a": 1}, np.arange(2)],
    "endless": [10**400, -(10**400)],
}
DTYPES = ["str", "string", "category", "object", "float32", "Int64", "bool", "complex"]
SHAPES = {
    "dropped": lambda frame, name: frame.drop(columns=name),
    "renamed": lambda frame, name: frame.rename(columns={name: f"{name} "}),
    "twice": lambda frame, name: pd.concat([frame, frame[[name]]], axis=1),
    "more": lambda frame, name: frame.assign(more=0),
    "turned": lambda frame, name: frame[frame.columns[::-1]],
    "no rows": lambda frame, name: frame[:0],
    "one row": lambda frame, name: frame[:1],
    "rows twice": lambda frame, name: pd.concat([frame, frame]),
    "indexed": lambda frame, name: frame.set_index(name, drop=False),
    "nullable": lambda frame, name: frame.convert_dtypes(),
    "numbered": lambda frame, name: frame.set_axis(range(frame.shape[1]), axis=1),
}
FORMS = {
    "frame": lambda frame: frame,
    "polars": lambda frame: pl.from_pandas(frame.reset_index(drop=True)),
    "array": lambda frame: frame.to_numpy(),
    "lists": lambda frame: frame.to_numpy().tolist(),
    "column": lambda frame: frame.iloc[:, 0],
    "nothing": lambda frame: None,
}


HEALTHY = healthy(160)
STEPS = st.tuples(
    st.sampled_from([*CELLS, *DTYPES, *SHAPES]), st.sampled_from(list(HEALTHY)), st.integers(0, 99)
)


def distort(frame, kind, name, seed):
    """Return the frame after one thing went wrong with it."""
    if list(frame.columns).count(name) != 1:
        return frame
    if kind in SHAPES:
        return SHAPES[kind](frame, name)
    if kind in DTYPES:
        return frame.assign(**{name: as_dtype(frame[name], kind)})
    rng = np.random.default_rng(seed)
    values = [CELLS[kind][k] for k in rng.integers(len(CELLS[kind]), size=len(frame))]
    kept = rng.random(len(frame)) < rng.choice([0.0, 0.7])
    column = frame[name].astype(object).where(kept, pd.Series(values, frame.index, dtype=object))
    return frame.assign(**{name: column.infer_objects()})


def as_dtype(column, dtype):
    try:
        return column.astype(dtype)
    except (TypeError, ValueError, OverflowError):
        return column.astype(str)


@st.composite
def distorted_frames(draw):
    first, n = draw(st.integers(0, 99)), draw(st.integers(1, 12))
    frame = HEALTHY.iloc[first : first + n]
    for kind, name, seed in draw(st.lists(STEPS, min_size=1, max_size=3)):
        frame = distort(frame, kind, name, seed)
    return frame


@st.composite
def distorted(draw):
    frame = draw(distorted_frames())
    form = draw(st.sampled_from(["frame"] * 8 + sorted(FORMS)))
    try:
        return FORMS[form](frame)
    except Exception:  # polars refuses some objects itself
        return frame


@functools.cache
def fitted(name):
    """Return one fitted model for all tables."""
    noise = np.random.default_rng(1).normal(size=len(HEALTHY))
    estimator = ESTIMATORS["tree" if name == "SplitConformalClassifier" else "prior"]
    clf = CLASSIFIERS[name].set_params(estimator=estimator, random_state=0)
    return clf.fit(HEALTHY, np.where(HEALTHY["number"] + HEALTHY["count"] + noise > 1.5, "a", "b"))


@pytest.mark.parametrize("name", CLASSIFIERS)
@cases(60)
@given(table=distorted())
def test_any_distorted_table_in_predict_is_an_answer_or_a_fareg_error(name, table):
    try:
        sets = fitted(name).predict_set(table)
    except fareg.FaregError:
        return
    assert sets.shape == (len(table), 2)


# --- audit -------------------------------------------------------------------------------------


@cases(50)
@given(
    table=tables(),
    choices=LABELS,
    level=st.sampled_from([0.5, 0.9, 0.99]),
    form=st.sampled_from(["flags", "lists"]),
)
def test_any_audited_table_is_an_answer_or_a_fareg_error(table, choices, level, form):
    y = labels_for(choices, len(table))
    rng = np.random.default_rng(0)
    sets = {
        "flags": rng.random((len(y), 2)) < 0.7,
        "lists": [[label] if rng.random() < 0.7 else [] for label in y],
    }[form]
    try:
        options = {"n_directions": 5, "n_permutations": 2, "random_state": 0}
        result = fareg.audit(table, y, sets, confidence_level=level, **options)
    except fareg.FaregError:
        return
    assert 0 <= result.coverage <= 1
    assert result.summary()


# --- files -------------------------------------------------------------------------------------


def written(table, path):
    """Write a table in the format of its path, as text if Parquet refuses its objects."""
    if path.suffix == ".csv":
        table.to_csv(path, index=False)
        return path
    try:
        table.to_parquet(path, index=False)
    except Exception:
        table.astype(str).to_csv(path.with_suffix(".csv"), index=False)
        return path.with_suffix(".csv")
    return path


@cases(40)
@given(table=tables(max_rows=90), choices=LABELS, suffix=st.sampled_from([".csv", ".parquet"]))
def test_any_file_in_fit_is_an_answer_or_a_fareg_error(table, choices, suffix, tmp_path):
    labels = labels_for(choices, len(table)).to_numpy()
    table.insert(0, "target", labels, allow_duplicates=True)
    path = written(table, tmp_path / f"table{suffix}")
    model, sets = tmp_path / "m.fareg", tmp_path / f"sets{suffix}"
    try:
        fit_file(path, target="target", out=model, estimator="logistic")
    except fareg.FaregError:
        assert not model.exists()
        return
    assert predict_file(model, path, sets)["rows"] == len(table)
    model.unlink()


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Return the path of a model that was fitted on a file."""
    folder = tmp_path_factory.mktemp("stored")
    table = healthy(300)
    table["target"] = np.where(table["number"] + table["count"] > 1.5, "a", "b")
    table.to_csv(folder / "t.csv", index=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit_file(folder / "t.csv", target="target", out=folder / "m.fareg", estimator="logistic")
    return folder / "m.fareg"


@cases(60)
@given(
    table=distorted_frames(),
    suffix=st.sampled_from([".csv", ".parquet"]),
    is_audit=st.sampled_from([True, False, False, False]),
)
def test_any_file_in_predict_and_audit_is_an_answer_or_a_fareg_error(
    table, suffix, is_audit, stored, tmp_path
):
    sets = tmp_path / f"sets{suffix}"
    path = written(table.assign(target="a"), tmp_path / f"table{suffix}")
    try:
        if is_audit:
            assert 0 <= audit_file(path, target="target", model=stored).coverage <= 1
        else:
            assert predict_file(stored, path, sets, batch_size=8)["rows"] == len(table)
    except fareg.FaregError:
        assert not sets.exists()
    sets.unlink(missing_ok=True)


@cases(50)
@given(
    suffix=st.sampled_from([".csv", ".parquet"]),
    edits=st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=3)), min_size=1, max_size=4),
)
def test_any_damaged_file_is_an_answer_or_a_fareg_error(suffix, edits, stored, tmp_path):
    path = written(HEALTHY[:12].assign(target="a"), tmp_path / f"table{suffix}")
    content = bytearray(path.read_bytes())
    for where, replacement in edits:
        at = int(where * len(content))
        content[at : at + 2] = replacement
    path.write_bytes(content)
    try:
        predict_file(stored, path, tmp_path / "sets.csv")
    except fareg.FaregError:
        return
