"""People with several rows: each counts once in calibration."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import beta

import fareg
from fareg import FaregError, FaregWarning
from fareg.classifiers import CLASSIFIERS
from fareg.persistence import describe
from fareg.pvalues import conformal_rank
from fareg.workflow import calibrate_file
from registry import LEARNERS, short

NAMES = ["p0", "p1", "p2"]


def rows_of(n_people, n_rows, seed=0):
    """Return rows whose first three columns are probabilities, labels and ids; copies of people."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet([1, 1, 1], size=n_people)
    y = (rng.random((n_people, 1)) > np.cumsum(p, axis=1)[:, :-1]).sum(axis=1)
    person = np.repeat(np.arange(n_people), n_rows)
    return np.hstack([p, rng.integers(2, size=(n_people, 2))])[person], y[person], person


def made(cls, reader, **options):
    return short(cls, reader(), sensitive_features=[-2, -1], random_state=0, **options)


@pytest.mark.parametrize("n_people", [8, 9])
def test_copies_of_few_people_are_few_people(reader, n_people):
    X, y, person = rows_of(n_people, 50)
    clf = made(fareg.SplitConformalClassifier, reader)
    if n_people == 8:
        with pytest.warns(FaregWarning, match="fewer than 9 clusters of calibration rows") as told:
            clf.conformalize(X, y, clusters=person)
        assert sum("fewer than" in str(one.message) for one in told) == 1
    else:
        clf.conformalize(X, y, clusters=person)
    assert bool(np.isinf(clf.thresholds_[0][0])) == (n_people == 8)
    assert clf.n_calibration_clusters_ == n_people
    assert "drawn at random from a new cluster like the calibration clusters." in clf.promise_


def test_copies_of_people_have_the_sets_of_one_row_each(reader):
    X, y, person = rows_of(60, 5)
    _, once = np.unique(person, return_index=True)
    for cls in CLASSIFIERS:
        if cls in LEARNERS:
            continue  # some of the rows teach
        many = made(cls, reader, conformity_score="lac").conformalize(X, y, clusters=person)
        few = made(cls, reader, conformity_score="lac").conformalize(X[once], y[once])
        np.testing.assert_array_equal(many.predict_set(X), few.predict_set(X), cls.__name__)


@pytest.mark.parametrize("cls", CLASSIFIERS)
@pytest.mark.filterwarnings("ignore::fareg._validation.FaregWarning")
def test_what_people_count_is_stored(reader, tmp_path, cls):
    X, y, person = rows_of(40, 3)
    table = pd.DataFrame(X, columns=[*NAMES, "a", "b"])
    clf = short(cls, fareg.ProbabilityColumns(NAMES), random_state=0)
    clf.conformalize(table, y, clusters=person)
    fareg.save(clf, tmp_path / "m.fareg")
    back = fareg.load(tmp_path / "m.fareg")
    assert back.promise_ == clf.promise_
    np.testing.assert_array_equal(back.predict_set(table), clf.predict_set(table))


def test_rows_in_files_cannot_be_counted_for_a_model_with_clusters(tmp_path):
    X, y, person = rows_of(40, 3)
    table = pd.DataFrame(X, columns=[*NAMES, "a", "b"])
    clf = short(fareg.FaReGClassifier, fareg.ProbabilityColumns(NAMES), random_state=0)
    clf.conformalize(table, y, clusters=person)
    fareg.save(clf, tmp_path / "m.fareg")
    table.assign(y=y).to_csv(tmp_path / "rows.csv", index=False)
    with pytest.raises(FaregError, match="a cluster may be spread over several files"):
        calibrate_file(
            tmp_path / "m.fareg", tmp_path / "rows.csv", target="y", out=tmp_path / "new.fareg"
        )
    with pytest.raises(FaregError, match=r"^clusters= is needed, .*, or np.arange\(len\(X\)\) if"):
        clf.recalibrated(table, y)
    assert clf.recalibrated(table, y, clusters=np.arange(len(y))).n_calibration_clusters_ == len(y)


# --- how many calibrated ---


@pytest.mark.parametrize("cls", CLASSIFIERS)
@pytest.mark.filterwarnings("ignore::fareg._validation.FaregWarning")
def test_rows_that_teach_do_not_count_as_calibration_rows(reader, cls, tmp_path):
    """A thousand rows are given; where half of them teach, the other half calibrates."""
    X, y, _ = rows_of(1000, 1)
    table = pd.DataFrame(X, columns=[*NAMES, "a", "b"])
    clf = short(cls, fareg.ProbabilityColumns(NAMES), random_state=0).conformalize(table, y)
    n = 500 if cls in LEARNERS else 1000
    assert clf.n_calibration_ == n
    assert clf.n_calibration_clusters_ is None
    fareg.save(clf, tmp_path / "m.fareg")
    assert describe(tmp_path / "m.fareg")["n_calibration"] == n
    if hasattr(clf, "groups_"):
        assert clf.groups_["n_calibration"][clf.groups_["rule"] == ""].sum() == n


@pytest.mark.parametrize(("n_rows", "n_calibrate"), [(1, 100), (4, 25)])
@pytest.mark.filterwarnings("ignore::fareg._validation.FaregWarning")
def test_a_report_allows_for_those_who_calibrated(reader, n_rows, n_calibrate):
    """Two hundred rows, of which half teach; or the rows of fifty people."""
    X, y, person = rows_of(200 // n_rows, n_rows)
    clf = made(fareg.FaReGClassifier, reader)
    clf.conformalize(X, y, clusters=None if n_rows == 1 else person)
    new, y_new, _ = rows_of(300, 1, seed=1)
    told = clf.report(new, y_new, measures=False)
    k = conformal_rank(n_calibrate, 0.1)
    assert told.left.least_coverage == beta.ppf(0.025, k, n_calibrate + 1 - k)
