"""Tables beside X: probabilities of anyone's model, and who the rows are about."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression

import fareg
from fareg import FaReGClassifier, FaregError, ProbabilityColumns, SplitConformalClassifier
from fareg.classifiers import CLASSIFIERS, _answers, _rows
from fareg.metrics import coverage_score
from registry import batch_of, short

LABELS = np.array(["low", "mid", "top"])
NAMES = [f"p_{label}" for label in LABELS]


def people(n, seed=0):
    """Return who rows are about, class probabilities, and labels that follow these."""
    rng = np.random.default_rng(seed)
    P = rng.dirichlet([1, 1, 1], n)
    y = LABELS[(rng.random((n, 1)) > P.cumsum(axis=1)).sum(axis=1).clip(0, 2)]
    who = pd.DataFrame({"sex": rng.choice(["f", "m"], n), "age": rng.integers(18, 90, n)})
    return who, P, y


WHO, P, Y = people(400)
WHO_NEW, P_NEW, Y_NEW = people(150, seed=1)


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "fewer than|too few|.*never saw", fareg.FaregWarning)
        yield


@pytest.mark.parametrize("cls", CLASSIFIERS)
def test_probabilities_beside_the_table_answer_like_columns_of_it(cls, tmp_path):
    table, new = WHO.copy(), WHO_NEW.copy()
    table[NAMES], new[NAMES] = P, P_NEW
    read = short(cls, ProbabilityColumns(NAMES), random_state=0).conformalize(table, Y)
    clf = short(cls, random_state=0).conformalize(WHO, Y, proba=P, classes=list(LABELS))
    for name in ("predict", "predict_proba", "conformity_scores", "predict_set"):
        told = getattr(clf, name)(WHO_NEW, proba=P_NEW)
        np.testing.assert_array_equal(told, getattr(read, name)(new), err_msg=name)
    labels = zip(clf.predict_labels(WHO_NEW, proba=P_NEW), read.predict_labels(new), strict=True)
    assert all(own.tolist() == other.tolist() for own, other in labels)
    fareg.save(clf, tmp_path / "m.fareg")
    back = fareg.load(tmp_path / "m.fareg")
    pd.testing.assert_frame_equal(back.predict_table(WHO_NEW, proba=P_NEW), read.predict_table(new))


def test_the_label_of_each_column_is_told_named_or_sorted():
    mixed = ["top", "low", "mid"]
    order = [2, 0, 1]
    usual = SplitConformalClassifier(conformity_score="lac").conformalize(WHO, Y, proba=P)
    assert usual.classes_.tolist() == LABELS.tolist()
    sets = usual.predict_set(WHO_NEW, proba=P_NEW)
    told = SplitConformalClassifier(conformity_score="lac").conformalize(
        WHO, Y, proba=P[:, order], classes=mixed
    )
    assert told.classes_.tolist() == mixed
    np.testing.assert_array_equal(told.predict_set(WHO_NEW, proba=P_NEW[:, order]), sets[:, order])
    for frame in (pd.DataFrame, pl.DataFrame):
        named = frame(dict(zip([f"p_{label}" for label in mixed], P_NEW.T[order], strict=True)))
        np.testing.assert_array_equal(usual.predict_set(WHO_NEW, proba=named), sets)
    model = LogisticRegression().fit(WHO[["age"]], Y)
    fitted = SplitConformalClassifier(model, conformity_score="lac").conformalize(
        WHO[["age"]], Y, proba=P[:, order], classes=mixed
    )
    assert fitted.classes_.tolist() == LABELS.tolist()
    np.testing.assert_array_equal(fitted.predict_set(WHO_NEW[["age"]], proba=P_NEW), sets)


def test_rows_that_teach_bring_their_probabilities_and_who_they_are_about():
    clf = FaReGClassifier(sensitive_features=["sex"], random_state=0)
    features = pd.DataFrame({"dose": P[:, 0]})
    clf.conformalize(
        features[200:],
        Y[200:],
        proba=P[200:],
        sensitive_features=WHO[200:],
        X_learn=features[:200],
        y_learn=Y[:200],
        proba_learn=P[:200],
        sensitive_learn=WHO[:200],
    )
    assert len(clf.calibration_.sample) == 200
    assert clf.disadvantage_.columns == ("sex",)
    new = pd.DataFrame({"dose": P_NEW[:, 0]})
    assert clf.predict_level(new, sensitive_features=WHO_NEW).shape == (150,)
    assert clf.plot_levels(new, Y_NEW, proba=P_NEW, sensitive_features=WHO_NEW) is not None


@pytest.mark.parametrize("cls", CLASSIFIERS)
def test_blocks_of_an_array_in_a_file_give_the_same_sets(cls, tmp_path, monkeypatch):
    """Scores are computed for a few rows at a time, and the array is never read as a whole."""
    whole = short(cls, random_state=0, allow_empty=False).conformalize(WHO, Y, proba=P)
    sets = whole.predict_set(WHO_NEW, proba=P_NEW)
    np.save(tmp_path / "p.npy", P)
    np.save(tmp_path / "new.npy", P_NEW)
    seen = []
    check = _answers.check_proba

    def noted(proba, **options):
        seen.append(np.shape(proba))
        return check(proba, **options)

    monkeypatch.setattr(_rows, "BLOCK", 3 * 32)
    monkeypatch.setattr(_answers, "check_proba", noted)
    mapped = np.load(tmp_path / "p.npy", mmap_mode="r")
    clf = short(cls, random_state=0, allow_empty=False).conformalize(WHO, Y, proba=mapped)
    assert seen
    assert max(rows for rows, _ in seen if rows) == 32
    new = np.load(tmp_path / "new.npy", mmap_mode="r")
    np.testing.assert_array_equal(clf.predict_set(WHO_NEW, proba=new), sets)
    table = clf.predict_table(WHO_NEW, proba=new)
    np.testing.assert_array_equal(table["size"], sets.sum(axis=1))
    wrong = P.copy()
    wrong[77] = 2.0
    with pytest.raises(FaregError, match="got 6 in row 77; pass normalised"):
        clf.conformalize(WHO, Y, proba=wrong)


@pytest.mark.parametrize(
    ("proba", "options", "message"),
    [
        (P[:, 1], {}, r"got shape \(400,\); with two classes .* np.column_stack\(\[1 - p, p\]\)"),
        (P[:-1], {}, "must have the same number of rows; X has 400, proba has 399"),
        (P[:, :2], {}, "proba has 2 columns without names but y holds 3 labels .* pass classes"),
        (P, {"classes": ["low", "mid"]}, "each of the 3 columns of proba, got 2 labels"),
        (P, {"classes": ["a", "b", "c"]}, "y holds no label .* its classes are a, b, c"),
        (pd.DataFrame(P, columns=["a", "b", "c"]), {}, "proba has columns a, b, c, but none"),
        (100 * P, {}, "divide percent by 100"),
        (np.log(P), {}, "apply softmax"),
        (P.astype(str), {}, "proba must hold numbers"),
        (None, {"classes": LABELS}, "got no proba"),
        (P, {"X_learn": WHO, "y_learn": Y}, "learns nothing from X_learn"),
    ],
)
def test_bad_probabilities_are_refused_with_the_fix(proba, options, message):
    with pytest.raises(FaregError, match=message):
        SplitConformalClassifier().conformalize(WHO, Y, proba=proba, **options)


def test_swapped_columns_are_told():
    sharp = np.eye(3)[np.searchsorted(LABELS, Y)] * 0.8 + 0.2 / 3
    with pytest.warns(fareg.FaregWarning, match=r"right for 0.0% of 400 rows.*swapped"):
        SplitConformalClassifier().conformalize(WHO, Y, proba=np.roll(sharp, 1, axis=1))
    one_pair = sharp[:, [0, 2, 1]]  # right more often than a blind guess, and still wrong
    names = f"the columns of {LABELS[1]} and {LABELS[2]} were exchanged"
    with pytest.warns(fareg.FaregWarning, match=f"100.0% if {names}"):
        SplitConformalClassifier().conformalize(WHO, Y, proba=one_pair)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SplitConformalClassifier().conformalize(WHO, Y, proba=sharp, ids=range(len(Y)))


DOSE, DOSE_NEW = pd.DataFrame({"dose": P[:, 0]}), pd.DataFrame({"dose": P_NEW[:, 0]})


@pytest.mark.parametrize("cls", CLASSIFIERS)
def test_sensitive_features_beside_the_table_define_groups(cls, tmp_path):
    model = LogisticRegression().fit(DOSE, Y)
    clf = short(cls, model, random_state=0, conformity_score="lac")
    clf.conformalize(DOSE, Y, sensitive_features=WHO)
    sets = clf.predict_set(DOSE_NEW, sensitive_features=WHO_NEW[["age", "sex"]])

    class Reads(BaseEstimator):
        """The same model, which finds its column in the whole table."""

        classes_ = model.classes_

        def predict_proba(self, X):
            return model.predict_proba(X[["dose"]])

    joined = short(
        cls, Reads(), random_state=0, conformity_score="lac", sensitive_features=["sex", "age"]
    ).conformalize(DOSE.join(WHO), Y)
    np.testing.assert_array_equal(sets, joined.predict_set(DOSE_NEW.join(WHO_NEW)))
    fareg.save(clf, tmp_path / "m.fareg")
    back = fareg.load(tmp_path / "m.fareg")
    assert back.sensitive_kinds_ == {"sex": "text", "age": "number"}
    np.testing.assert_array_equal(back.predict_set(DOSE_NEW, sensitive_features=WHO_NEW), sets)
    if cls is SplitConformalClassifier:  # it has no groups, so it asks for nothing
        np.testing.assert_array_equal(back.predict_set(DOSE_NEW), sets)
        return
    with pytest.raises(FaregError, match=r"pass them again: sensitive_features=frame"):
        back.predict_set(DOSE_NEW)


def test_labels_in_another_order_are_refused_wherever_rows_have_names():
    y = pd.Series(Y, index=DOSE.index)
    mixed = y[::-1]
    clf = fareg.FaReGClassifier(LogisticRegression().fit(DOSE, Y), random_state=0)
    clf.conformalize(DOSE, Y)
    sets = pd.DataFrame(clf.predict_set(DOSE), columns=clf.classes_)
    for ask in (
        lambda: clf.fit(DOSE, mixed),
        lambda: clf.conformalize(DOSE, mixed),
        lambda: clf.conformalize(DOSE, y, X_learn=DOSE, y_learn=mixed),
        lambda: clf.conformalize(DOSE, y, clusters=mixed),
        lambda: clf.report(DOSE, mixed),
        lambda: fareg.audit(DOSE, mixed, sets),
        lambda: fareg.audit(DOSE, y, sets[::-1]),
        lambda: fareg.audit(DOSE, y, sets, clusters=mixed),
        lambda: coverage_score(mixed, sets),
    ):
        with pytest.raises(FaregError, match=r"must have its rows in the order of .*; pass .*loc"):
            ask()


class Noting(LogisticRegression):
    """Notes which columns it was shown."""

    shown = set()  # noqa: RUF012  # one list for all copies

    def fit(self, X, y):
        Noting.shown.update(X.columns)
        return super().fit(X, y)

    def predict_proba(self, X):
        Noting.shown.update(X.columns)
        return super().predict_proba(X)


@pytest.mark.parametrize("cls", [FaReGClassifier, fareg.PartialConformalClassifier])
def test_an_estimator_never_sees_excluded_features(cls, tmp_path):
    Noting.shown.clear()
    X, new = DOSE.join(WHO), DOSE_NEW.join(WHO_NEW)
    clf = short(cls, Noting(), sensitive_features=["sex", "age"], random_state=0)
    clf.fit(X, Y, exclude_sensitive=True)
    sets = clf.predict_set(new)
    assert Noting.shown == {"dose"}
    assert list(batch_of(clf, new).people) == ["sex", "age"]
    clf = short(cls, LogisticRegression(), sensitive_features=["sex", "age"], random_state=0)
    clf.fit(X, Y, exclude_sensitive=True)
    np.testing.assert_array_equal(clf.predict_set(new), sets)
    fareg.save(clf, tmp_path / "m.fareg")
    back = fareg.load(tmp_path / "m.fareg")
    np.testing.assert_array_equal(back.predict_set(new), sets)
    assert back.excluded_ == [1, 2]
    # rows that calibrate anew are asked without these columns too
    assert clf.conformalize(X, Y).excluded_ == [1, 2]


TAUGHT = {"X_learn": DOSE, "y_learn": Y, "proba_learn": P, "sensitive_learn": WHO}
FAREG, PARTIAL = FaReGClassifier, fareg.PartialConformalClassifier


@pytest.mark.parametrize(
    ("cls", "verb", "beside", "message"),
    [
        (
            PARTIAL,
            "conformalize",
            {"sensitive_features": ["sex"]},
            "a frame, got list; to use columns of X",
        ),
        (PARTIAL, "conformalize", {"sensitive_features": WHO[:-1]}, "the same number of rows"),
        (
            PARTIAL,
            "conformalize",
            {"sensitive_features": WHO.to_numpy()},
            "a frame, got ndarray",
        ),
        (FAREG, "conformalize", {**TAUGHT, "clusters_learn": [1, 2]}, "clusters has 2"),
        (FAREG, "conformalize", {**TAUGHT, "clusters_learn": np.arange(300)}, "clusters has 300"),
        (FAREG, "conformalize", {**TAUGHT, "sensitive_learn": None}, "sensitive_learn=frame"),
        (FAREG, "conformalize", {**TAUGHT, "X_learn": None, "y_learn": None}, "got no X_learn"),
        (PARTIAL, "fit", {"exclude_sensitive": True}, "by name or position, got None"),
        ("all", "fit", {"exclude_sensitive": True}, "leaves the estimator no column"),
    ],
)
def test_what_lies_beside_the_table_and_cannot_be_used_is_refused(cls, verb, beside, message):
    selection = ["dose"] if cls == "all" else None
    clf = (PARTIAL if cls == "all" else cls)(LogisticRegression(), sensitive_features=selection)
    own = {"sensitive_features": WHO, "proba": P} if verb == "conformalize" else {}
    with pytest.raises(FaregError, match=message):
        getattr(clf, verb)(DOSE, Y, **{**own, **beside})


def test_what_was_beside_the_table_is_asked_for_again():
    clf = PARTIAL().conformalize(DOSE, Y, proba=P, sensitive_features=WHO["sex"])
    new = {"sensitive_features": WHO_NEW}
    with pytest.raises(FaregError, match="pass the probabilities of these rows too: proba=P"):
        clf.predict_set(DOSE_NEW, **new)
    with pytest.raises(FaregError, match=r"each of the 3 classes \(low, mid, top\), got 2"):
        clf.predict_set(DOSE_NEW, proba=P_NEW[:, :2], **new)
    with pytest.raises(FaregError, match="has no column sex; its columns: age"):
        clf.predict_set(DOSE_NEW, proba=P_NEW, sensitive_features=WHO_NEW[["age"]])
    clf = fareg.ExhaustiveConformalClassifier(LogisticRegression(), random_state=0)
    clf.fit(DOSE, Y, sensitive_features=WHO[["sex"]])  # it divides what is beside the table too
    assert (clf.estimator_.n_features_in_, len(clf.cells_)) == (1, 2)
    assert clf.predict_set(DOSE_NEW, **new).shape == (150, 3)
    with pytest.raises(FaregError, match="without a frame of sensitive_features; leave it out"):
        clf.fit(DOSE, Y).predict_set(DOSE_NEW, **new)
