"""Any table leads to an answer or to a FaregError, through fit, predict, files and audit."""

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier

import fareg
from fareg._encoding import one_hot_encoder, ordinal_encoder

MODERATE = settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
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
    "forest": make_pipeline(ordinal_encoder(), RandomForestClassifier(2, max_depth=2)),
}
CLASSIFIERS = {
    "split": fareg.SplitConformalClassifier(),
    "partial": fareg.PartialConformalClassifier(),
    "exhaustive": fareg.ExhaustiveConformalClassifier(),
    "afcp": fareg.AFCPClassifier(),
    "condcp": fareg.CondCPClassifier(),
    "plcp": fareg.PLCPClassifier(max_iter=2, n_restarts=1),
    "fareg": fareg.FaReGClassifier(max_iter=3, n_restarts=1, significance=None),
    "paper": fareg.FaReGClassifier.paper(max_iter=3, n_draws=2),
}


def labels_for(choices, n):
    picked = [choices[k] for k in np.random.default_rng(0).integers(len(choices), size=n)]
    return pd.Series(picked, dtype=object).infer_objects()


@pytest.mark.parametrize("name", CLASSIFIERS)
@MODERATE
@given(table=tables(), choices=LABELS, estimator=st.sampled_from(sorted(ESTIMATORS)))
@example(table=pd.DataFrame({"a": [np.inf, 1e308] * 20}), choices=["a", "b"], estimator="tree")
def test_any_table_is_an_answer_or_a_fareg_error(name, table, choices, estimator, tmp_path):
    clf = CLASSIFIERS[name].set_params(estimator=ESTIMATORS[estimator], random_state=0)
    y = labels_for(choices, len(table))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            clf.fit(table, y)
        except fareg.FaregError:
            return
        for rows in (table, table[:1], table[::-1]):
            sets = clf.predict_set(rows)
            assert sets.shape == (len(rows), len(clf.classes_))
        assert (clf.predict_set(table)[:1] == clf.predict_set(table[:1])).all()
        fareg.save(clf, tmp_path / "m.fareg")
        assert (fareg.load(tmp_path / "m.fareg").predict_set(table) == clf.predict_set(table)).all()


@MODERATE
@given(first=tables(min_rows=20), second=tables(), name=st.sampled_from(sorted(CLASSIFIERS)))
def test_any_other_table_in_predict_is_an_answer_or_a_fareg_error(first, second, name):
    clf = CLASSIFIERS[name].set_params(estimator=ESTIMATORS["logistic"], random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            clf.fit(first, labels_for(["a", "b"], len(first)))
        except fareg.FaregError:
            return
        n = min(len(first.columns), len(second.columns))
        second = second.iloc[:, :n].set_axis(first.columns[:n], axis=1)
        try:
            assert len(clf.predict_set(second)) == len(second)
        except fareg.FaregError:
            return


@MODERATE
@given(table=tables(), choices=LABELS, level=st.sampled_from([0.5, 0.9, 0.99]))
def test_any_audited_table_is_an_answer_or_a_fareg_error(table, choices, level):
    y = labels_for(choices, len(table))
    rng = np.random.default_rng(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sets in (
            rng.random((len(y), 2)) < 0.7,
            [[label] if rng.random() < 0.7 else [] for label in y],
        ):
            try:
                result = fareg.audit(
                    table, y, sets, confidence_level=level, n_directions=5, n_permutations=2,
                    random_state=0,
                )  # fmt: skip
            except fareg.FaregError:
                continue
            assert 0 <= result.coverage <= 1
            assert result.summary()
