"""Sets read back as they were written, for every label: ``predict`` to a file, ``audit`` of it."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fareg import ProbabilityColumns, SplitConformalClassifier, save
from fareg.workflow import audit_file, predict_file
from fuzzing import cases
from shell import run

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("small_searches")]
N = 80
HARD = [
    ["cold; flu", "cold", "flu"],
    ["a;b", "a", "b"],
    ["a|b", "a\\|b", "a\\"],
    ['say "hi"', "it's", "'x', 'y'"],
    [" a", "a", "a "],
    ["007", "07", "7"],
    ["1", "1.0", "1e0"],
    ["1e20", "100000000000000000000", "x"],
    ["TRUE", "true", "no"],
    ["2020-01-01", "2021-01-01", "never"],
    ["[1, 2]", '["a", "b"]', "[]"],
    ["=1+1", "-3", "\t@x"],
    ["two\nlines", "two", "lines"],
    ["NA", "None", "N/A"],
    [False, True],
    [1, 2, 10],
]


def written(folder, labels, ending, only=None):
    """Predict for a table with these labels; return the file of answers, coverage and sizes."""
    rng = np.random.default_rng(0)
    proba = rng.dirichlet(np.ones(len(labels)), N)
    codes = (proba.cumsum(axis=1) < rng.random((N, 1))).sum(axis=1)
    table = pd.DataFrame(proba, columns=[f"p{j}" for j in range(len(labels))])
    columns = {label: f"p{j}" for j, label in enumerate(labels)}
    clf = SplitConformalClassifier(
        ProbabilityColumns(columns), confidence_level=0.8, random_state=0
    )
    clf.fit(table, [labels[code] for code in codes])
    save(clf, folder / "m.fareg")
    rows = np.ones(N, dtype=bool) if only is None else codes == only
    sets = clf.predict_set(table)[rows]
    place = [clf.classes_.tolist().index(label) for label in labels]
    covered = sets[np.arange(len(sets)), np.array(place)[codes[rows]]]
    table["y"] = [labels[code] for code in codes]
    table["age"] = np.arange(N) % 7
    source, out = folder / f"t.{ending}", folder / f"sets.{ending}"
    source.unlink(missing_ok=True)
    if ending == "parquet":
        table[rows].to_parquet(source)
    else:
        table[rows].to_csv(source, index=False)
    predict_file(folder / "m.fareg", source, out, keep=["y", "age"])
    return out, covered.mean(), sets.sum(axis=1).mean()


def check(folder, labels, ending, only=None):
    out, coverage, size = written(folder, labels, ending, only)
    found = audit_file(out, target="y", sets=["set"], sensitive=["age"]).to_dict()["overall"]
    assert found["coverage"] == pytest.approx(coverage)
    assert found["mean_size"] == pytest.approx(size)


@pytest.mark.filterwarnings("ignore::fareg.FaregWarning")
@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet"])
@pytest.mark.parametrize("labels", HARD, ids=str)
def test_an_audit_reads_the_sets_that_predict_wrote(tmp_path, labels, ending):
    check(tmp_path, labels, ending)


@pytest.mark.filterwarnings("ignore::fareg.FaregWarning")
@pytest.mark.parametrize("labels", HARD, ids=str)
def test_rows_of_one_label_say_nothing_about_the_others(tmp_path, labels):
    for code in range(len(labels)):
        check(tmp_path, labels, "csv", only=code)


# Words for missing values are no labels of a CSV file, nor is what UTF-8 cannot hold.
WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\0"), max_size=6)
PIECES = st.lists(st.sampled_from(["a", "b", "1", "0", ".", *" |;,\\\"'[]{}\n\t=-"]), max_size=6)
WILD = st.one_of(WORDS, PIECES.map("".join))
MISSING = {"", "nan", "null", "NULL", "NaN", "<NA>", "#N/A", "#NA", "-nan", "-NaN", "NA", "None"}


@pytest.mark.filterwarnings("ignore::fareg.FaregWarning")
@cases(25)
@given(st.lists(WILD, min_size=2, max_size=4, unique=True), st.sampled_from(["csv", "parquet"]))
@example(["", "a", "b"], "parquet")
def test_wild_labels_read_back_as_they_were_written(tmp_path_factory, labels, ending):
    if ending == "csv" and any(label.strip() in MISSING for label in labels):
        return
    check(tmp_path_factory.mktemp("wild"), labels, ending)


def test_the_shell_writes_and_reads_the_same_sets(tmp_path):
    out, coverage, _ = written(tmp_path, ["cold; flu", "cold", "flu"], "csv")
    first = pd.read_csv(out)["set"].map(json.loads)
    assert set(first.explode().dropna()) == {"cold; flu", "cold", "flu"}
    done = run("audit", out, "--target", "y", "--sets", "set", "--json")
    assert json.loads(done.stdout)["overall"]["coverage"] == pytest.approx(coverage)
