"""Whose random number it is: by id, or by number among equal rows of a call."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fareg import FaregError, FaregWarning, SplitConformalClassifier
from registry import batch_of, short_classifiers

QUIET = pytest.mark.filterwarnings("ignore::fareg.FaregWarning")


def people(n, seed, n_kinds=12):
    """Return probabilities of which few kinds are distinct, with labels drawn from them."""
    rng = np.random.default_rng(seed)
    kinds = np.random.default_rng(99).dirichlet(np.ones(3), n_kinds).round(6)
    kinds[:, 2] = 1 - kinds[:, :2].sum(axis=1)
    p = kinds[rng.integers(0, n_kinds, n)]
    y = np.minimum((rng.random((n, 1)) > p.cumsum(axis=1)).sum(axis=1), 2)
    return pd.DataFrame(p, columns=["p0", "p1", "p2"]).assign(who=rng.integers(0, 4, n)), y


@pytest.fixture(scope="module")
def split(reader):
    X, y = people(600, 0)
    clf = SplitConformalClassifier(reader(), random_state=0)
    return clf.conformalize(X, y, ids=np.arange(600))


@QUIET
@pytest.mark.parametrize("name", short_classifiers())
def test_with_ids_a_row_never_depends_on_others(name, reader):
    X, y = people(400, 0)
    clf = short_classifiers()[name]
    clf.set_params(estimator=reader(), sensitive_features=["who"], random_state=0)
    clf.conformalize(X, y, ids=[f"person {i}" for i in range(400)])
    new, _ = people(60, 1)
    ids = np.arange(60) // 2  # everyone comes twice
    scores, sets = clf.conformity_scores(new, ids=ids), clf.predict_set(new, ids=ids)
    order = np.random.default_rng(0).permutation(60)[:40]
    np.testing.assert_array_equal(
        clf.conformity_scores(new.iloc[order], ids=ids[order]), scores[order]
    )
    np.testing.assert_array_equal(clf.predict_set(new.iloc[order], ids=ids[order]), sets[order])
    table = clf.predict_table(new, ids=ids)
    np.testing.assert_array_equal(table["size"], sets.sum(axis=1))
    labels = clf.predict_labels(new, ids=ids)
    assert [len(some) for some in labels] == table["size"].tolist()
    if hasattr(clf, "predict_p"):
        np.testing.assert_array_equal(clf.predict_p(new, ids=ids) > clf.alpha_, sets)


def test_equal_people_have_numbers_of_their_own(split):
    one = people(1, 1)[0]
    many = pd.concat([one] * 500, ignore_index=True)
    for beside in ({}, {"ids": np.arange(500)}):
        scores = split.conformity_scores(many, **beside)
        assert len(np.unique(scores[:, 0])) == 500
    same = split.conformity_scores(many, ids=np.zeros(500))
    assert len(np.unique(same[:, 0])) == 1


def test_the_order_of_other_rows_does_not_matter_without_ids(split):
    new, _ = people(200, 2)
    scores = split.conformity_scores(new)
    order = np.random.default_rng(1).permutation(200)
    moved = split.conformity_scores(new.iloc[order])
    for _, some in new.groupby(list(new)):
        mine = np.isin(order, some.index)
        # equal rows keep their scores in the order in which they come
        np.testing.assert_array_equal(moved[mine], scores[np.sort(order[mine])])
    first = new.drop_duplicates()
    alone = np.concatenate([split.conformity_scores(first.iloc[[i]]) for i in range(len(first))])
    np.testing.assert_array_equal(alone, scores[first.index])


def test_one_person_is_one_person_however_the_id_is_stored(split):
    new, _ = people(3, 3)
    scores = split.conformity_scores(new, ids=[7, 8, 9])
    for ids in ([7.0, 8.0, 9.0], ["7", "8", "9"], [" 7", "8.0", "9"], pd.Series([7, 8, 9])):
        np.testing.assert_array_equal(split.conformity_scores(new, ids=ids), scores)
    far = 2**60 + np.arange(3)  # a float would take them for one number
    same = pd.concat([new[:1]] * 3, ignore_index=True)
    assert len(np.unique(split.conformity_scores(same, ids=far)[:, 0])) == 3


@QUIET
@pytest.mark.parametrize("ids", [None, np.arange(300)])
def test_calibration_and_prediction_have_independent_numbers(ids, reader):
    X, y = people(300, 0)
    clf = SplitConformalClassifier(reader(), random_state=0).conformalize(X, y, ids=ids)
    then = clf.labelled_rows(X, y, ids=ids).u
    now = batch_of(clf, X, ids=ids).u
    assert len(np.unique([*then, *now])) == 600
    assert abs(np.corrcoef(then, now)[0, 1]) < 4 / np.sqrt(300)


def test_rows_that_calibrate_have_numbers_of_their_own_even_if_an_id_repeats(split):
    X, y = people(300, 0)
    assert len(np.unique(split.labelled_rows(X, y, ids=np.zeros(300)).u)) == 300


@QUIET
def test_blocks_and_files_of_probabilities_have_the_numbers_of_one_table(monkeypatch, tmp_path):
    table, y = people(500, 0)
    P, X = table[["p0", "p1", "p2"]].to_numpy(), table[["who"]]
    clf = SplitConformalClassifier(random_state=0).conformalize(X, y, proba=P)
    sets, threshold = clf.predict_set(X, proba=P), clf.thresholds_[0]
    np.save(tmp_path / "p.npy", P)
    stored = np.load(tmp_path / "p.npy", mmap_mode="r")
    monkeypatch.setattr("fareg.classifiers._rows.BLOCK", 100)
    clf = SplitConformalClassifier(random_state=0).conformalize(X, y, proba=stored)
    np.testing.assert_array_equal(clf.thresholds_[0], threshold)
    np.testing.assert_array_equal(clf.predict_set(X, proba=stored), sets)
    ids = np.arange(500)
    whole = clf.predict_set(X, proba=P, ids=ids)
    monkeypatch.undo()
    np.testing.assert_array_equal(clf.predict_set(X, proba=P, ids=ids), whole)


def test_a_warning_tells_of_many_equal_rows_once_and_only_where_they_matter(reader, recwarn):
    X, y = people(300, 0)
    clf = SplitConformalClassifier(reader(), random_state=0)
    with pytest.warns(FaregWarning, match="66.7% of 300 calibration rows equal an earlier") as told:
        clf.conformalize(X, y)
    assert len(told) == 1
    with pytest.warns(FaregWarning, match="give every person an id of their own"):
        clf.conformalize(X, y, ids=np.zeros(300))
    recwarn.clear()
    clf.conformalize(X, y, ids=np.arange(300))
    clf.set_params(conformity_score="lac").conformalize(X, y)
    noisy = X.assign(who=np.random.default_rng(0).normal(size=300))
    clf.set_params(conformity_score="aps").conformalize(noisy, y)
    assert not recwarn.list


NOBODY = [
    (np.arange(5), "X and NAME must have the same number of rows; X has 60, NAME has 5"),
    ([None, *range(59)], "NAME must not be missing, got 1 missing ids of 60"),
    (np.append(np.nan, np.arange(59)), "NAME must not be missing, got 1 missing ids of 60"),
    (np.zeros((60, 2)), r"NAME must be one id per row, got shape \(60, 2\); pass a column"),
    ("patient", r"NAME must be one id per row, got 'patient'; pass X\['patient'\]"),
]
MIXED = (np.array([1, "a"] * 30, dtype=object), "clusters must hold ids of one type, got int, str")


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [*((n, *case) for n in ("ids", "clusters") for case in NOBODY), ("clusters", *MIXED)],
)
def test_ids_that_are_none_are_refused(name, given, said, split):
    new, y = people(60, 1)
    calls = {split.conformalize: (new, y), split.fit: (new, y)}
    calls |= {split.report: (new, y), split.predict_set: (new,)} if name == "ids" else {}
    for verb, rows in calls.items():
        with pytest.raises(FaregError, match=said.replace("NAME", name)):
            verb(*rows, **{name: given})
