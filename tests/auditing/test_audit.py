"""An audit reads anyone's sets, counts exactly, and never claims more than it verified."""

import json
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.stats import binomtest
from sklearn.linear_model import LogisticRegression

from fareg import AuditResult, FaregError, FaregWarning, audit
from fareg._columns import select_columns
from fareg.auditing._rate import Audited
from fareg.auditing._reading import read_sets
from fareg.auditing._tables import DELTAS, SLABS, level_tables, slab_curve
from fareg.datasets import make_metric_benchmark
from fareg.metrics import clopper_pearson, coverage_by_group, coverage_score, mean_set_size
from fareg.pvalues import holm
from fareg.report import render_report

FAST = {"n_directions": 5, "n_permutations": 5, "random_state": 0}
CLASSES = ["a", "b", "c"]
MARKS = np.array([[1, 0, 0], [0, 1, 1], [0, 0, 0], [1, 1, 1]], dtype=bool)
LISTS = [["a"], ["b", "c"], [], ["a", "b", "c"]]
Y = np.array(["a", "a", "b", "c"])
COVERED = [True, False, False, True]


def some_rows(n=300, seed=0):
    """Draw a mixed table, labels, and sets that miss label "a" more often in the north."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "region": rng.choice(["north", "south", "west"], n),
            "age": np.where(rng.random(n) < 0.1, np.nan, rng.integers(18, 90, n)),
            "member": rng.random(n) < 0.5,
        }
    )
    y = rng.choice(CLASSES, n)
    sets = rng.random((n, 3)) < 0.5
    own = np.searchsorted(CLASSES, y)
    sets[np.arange(n), own] = rng.random(n) < np.where(X["region"] == "north", 0.6, 0.97)
    return X, y, sets


def test_the_under_part_of_the_excess_risk_comes_from_the_same_folds():
    X, y, sets = some_rows(1500)
    result = audit(X, y, sets, classes=CLASSES, n_directions=5, n_permutations=2, random_state=0)
    assert result.excess_risk_under > 0
    assert result.to_dict()["excess_risk_under"] == result.excess_risk_under
    page = render_report(result.to_dict())
    assert f">{result.excess_risk_under:.3f}</b>" in page
    quick = audit(X, y, sets, classes=CLASSES, measures=False, random_state=0)
    assert quick.to_dict()["excess_risk_under"] is None


@pytest.mark.parametrize(
    "sets",
    [
        pytest.param(MARKS, id="bool"),
        pytest.param(MARKS.astype(int), id="zeros and ones"),
        pytest.param(MARKS[:, :, None], id="mapie"),
        pytest.param(MARKS.tolist(), id="lists of bool"),
        pytest.param(pd.DataFrame(MARKS), id="frame"),
        pytest.param(pl.DataFrame(MARKS), id="polars frame"),
        pytest.param(LISTS, id="lists"),
        pytest.param([tuple(labels) for labels in LISTS], id="tuples"),
        pytest.param([set(labels) for labels in LISTS], id="sets"),
        pytest.param([np.array(labels, dtype=object) for labels in LISTS], id="arrays"),
        pytest.param(pd.Series(LISTS), id="column"),
        pytest.param(pl.Series(LISTS), id="polars column"),
        pytest.param(np.array(LISTS, dtype=object), id="object array"),
    ],
)
@pytest.mark.parametrize("classes", [CLASSES, np.array(CLASSES), None])
def test_every_form_of_sets_is_read_alike(sets, classes):
    table = read_sets(sets, Y, classes)
    assert table.covered.tolist() == COVERED
    assert table.size.tolist() == [1, 2, 0, 3]
    assert table.classes == ("a", "b", "c")


def test_lists_of_equal_length_are_labels_not_marks():
    table = read_sets([[0, 1], [1, 2]], [1, 0])
    assert table.covered.tolist() == [True, False]
    table = read_sets(np.array([["a", "b"], ["b", "c"]]), ["b", "a"])
    assert table.covered.tolist() == [True, False]
    assert table.sets.sum() == 4


def test_true_and_false_may_be_labels():
    table = read_sets([[True], [False, True], [True]], np.array([True, False, False]))
    assert table.classes == (False, True)
    assert table.covered.tolist() == [True, True, False]


def test_mapie_sets():
    from mapie.classification import SplitConformalClassifier

    X, y = _numbers()
    model = LogisticRegression().fit(X[:200], y[:200])
    mapie = SplitConformalClassifier(model, confidence_level=0.9, prefit=True)
    _, sets = mapie.conformalize(X[200:400], y[200:400]).predict_set(X[400:])
    assert sets.ndim == 3
    result = audit(X[400:], y[400:], sets, classes=model.classes_, **FAST)
    expected = coverage_score(y[400:], sets[:, :, 0], classes=model.classes_)
    assert result.coverage == expected
    two = SplitConformalClassifier(model, confidence_level=[0.9, 0.8], prefit=True)
    _, sets = two.conformalize(X[200:400], y[200:400]).predict_set(X[400:])
    with pytest.raises(FaregError, match=r"\(200, 3, 2\); pass one confidence level at a time"):
        audit(X[400:], y[400:], sets, classes=model.classes_)


def test_crepes_sets():
    from crepes import WrapClassifier

    X, y = _numbers()
    model = WrapClassifier(LogisticRegression())
    model.fit(X[:200], y[:200])
    model.calibrate(X[200:400], y[200:400])
    lists = model.predict_set(X[400:], confidence=0.9, smoothing=False)
    marks = model.predict_set(X[400:], confidence=0.9, smoothing=False, labels=False)
    by_list = audit(X[400:], y[400:], lists, **FAST)
    by_mark = audit(X[400:], y[400:], marks, classes=model.learner.classes_, **FAST)
    assert by_list.to_dict() == by_mark.to_dict()
    assert by_list.mean_size == mean_set_size(marks)


def _numbers():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3))
    y = np.array(["high", "low", "mid"])[np.digitize(X[:, 0] + rng.normal(size=600), [-0.7, 0.7])]
    return X, y


@pytest.mark.parametrize(
    ("sets", "y", "classes", "message"),
    [
        (LISTS, Y, ["a", "b"], "'c' in row 1, which is not one of the classes"),
        (MARKS, Y, ["a", "b"], "3 columns of sets, got 2 labels"),
        (MARKS, Y, ["a", "b", "b"], "distinct labels"),
        (MARKS, ["a", "b", "a", "b"], None, "pass classes"),
        (MARKS[:2], Y, CLASSES, "y has 4, sets has 2"),
        (LISTS[:2], Y, CLASSES, "y has 4, sets has 2"),
        (["a", "b|c", "", "a"], Y, CLASSES, "'a' in row 0; read texts into lists"),
        ([["a"], None, [], []], Y, CLASSES, "None in row 1"),
        (np.arange(12).reshape(4, 3), Y, CLASSES, "only True and False"),
        (np.zeros((4, 3, 2)), Y, CLASSES, "pass one confidence level at a time"),
        (np.zeros(4), Y, CLASSES, "got shape"),
        ([["1"], ["2"]], [1, 2], None, "same labels, got 1 in y and '1' in sets"),
        (MARKS, [None, "a", "b", "c"], CLASSES, "missing labels"),
    ],
)
def test_unusable_sets_get_a_sentence(sets, y, classes, message):
    with pytest.raises(FaregError, match=message):
        audit(np.zeros((len(y), 1)), y, sets, classes=classes)


def test_a_label_outside_the_classes_is_never_covered_and_noted():
    with pytest.warns(FaregWarning, match=r"1 of 4 labels .*z.*not covered"):
        result = audit(np.zeros((4, 1)), ["a", "z", "b", "c"], MARKS, classes=CLASSES, **FAST)
    assert result.coverage == 0.5
    assert "(z)" in result.to_dict()["notes"][0]
    assert "(z)" in str(result)


def test_cells_agree_with_coverage_by_group():
    X, y, sets = some_rows()
    covered = read_sets(sets, y, CLASSES).covered
    columns = select_columns(X, None)
    people = Audited(columns, covered, sets.sum(axis=1))
    ours = pd.concat(level_tables(people, 0.9))
    expected = coverage_by_group(X, covered, pairs=True)
    both = ours.merge(expected, on="group", suffixes=("", "_expected"))
    assert len(both) == len(ours) == len(expected)
    for name in ("n", "share", "coverage", "low", "high"):
        np.testing.assert_allclose(both[name], both[f"{name}_expected"])


def test_a_finding_is_counted_where_it_was_not_proposed():
    X, y, sets = some_rows(1000)
    result = audit(X, y, sets, classes=CLASSES, **FAST)
    covered = read_sets(sets, y, CLASSES).covered
    (found,) = result.findings
    assert str(found.rule) == "region = north"
    np.testing.assert_array_equal(found.mask, X["region"] == "north")
    assert (found.n_found, found.n_splits, found.stability) == (20, 20, 1.0)
    assert found.n_new == found.mask.sum()
    # every half counted about half of the group, and each row in about every second half
    assert found.rate.n == pytest.approx(found.mask.sum() / 2, rel=0.1)
    assert found.counted.sum() == pytest.approx(20 * found.rate.n, abs=10)
    held_out = found.counted @ covered / found.counted.sum()
    assert found.rate.share == pytest.approx(held_out, abs=0.01)
    assert found.rate.low < found.rate.share < found.rate.high < 0.9
    one = audit(X, y, sets, classes=CLASSES, n_splits=1, **FAST).findings[0]
    k, n = round(one.rate.share * one.rate.n), one.rate.n
    test = binomtest(k, n, 0.9, alternative="less")
    assert one.adjusted_p_value == pytest.approx(test.pvalue)  # a single proposal in a single half
    ends = tuple(map(float, clopper_pearson(k, n)))
    assert (one.rate.low, one.rate.high) == pytest.approx(ends)


def test_another_seed_finds_the_same():
    X, y, sets = some_rows(1000)
    options = {"classes": CLASSES, "measures": False}
    several = [audit(X, y, sets, random_state=seed, **options).findings for seed in range(4)]
    assert {tuple(str(own.rule) for own in found) for found in several} == {("region = north",)}


def ring(n=3000, seed=0):
    """Draw two numbers and coverage that is low on a ring, which no short rule describes."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"a": rng.normal(size=n), "b": rng.normal(size=n)})
    radius = np.hypot(X["a"], X["b"])
    hits = rng.random(n) < np.where((radius > 0.8) & (radius < 1.6), 0.7, 0.98)
    return X, np.zeros(n, dtype=int), np.column_stack([hits, ~hits])


def test_the_numbers_of_a_finding_are_those_of_its_words():
    """The words are valid Python for numbers, so Python can read them."""
    X, y, sets = ring()
    result = audit(X, y, sets, classes=[0, 1], **FAST)
    assert result.groups
    for group in result.groups:
        rows = [eval(str(group.rule), row) for row in X.to_dict("records")]
        np.testing.assert_array_equal(group.mask, rows)


def test_a_group_that_equals_a_level_is_listed_once():
    for seed in range(4):
        X, y, sets = some_rows(1000, seed)
        groups = audit(X, y, sets, classes=CLASSES, **FAST).groups
        assert len({str(group.rule) for group in groups}) == len(groups)
        assert len({group.mask.tobytes() for group in groups}) == len(groups)


def test_holm_is_holm():
    p = np.array([0.012, 0.001, 0.5, 0.02])
    assert holm(p) == pytest.approx([0.036, 0.004, 0.5, 0.04])
    assert holm(np.array([])).size == 0


def test_same_seed_same_audit_and_rows_of_any_library():
    X, y, sets = some_rows()
    first = audit(X, y, sets, classes=CLASSES, **FAST)
    again = audit(pl.from_pandas(X), y.tolist(), sets, classes=CLASSES, **FAST)
    assert first.to_dict() == again.to_dict()


def nothing_special(n=60, **columns):
    rng = np.random.default_rng(1)
    X = pd.DataFrame({"a": rng.normal(size=n), "b": rng.choice(["x", "y"], n), **columns})
    return X, rng.choice(CLASSES, n), rng.random((n, 3)) < 0.8


SMALL = {
    "1 row": ([["u"]], ["a"], [["a"]]),
    "2 rows": ([["u"], ["v"]], ["a", "b"], [["a"], ["a"]]),
    "one class": ([["u"]] * 50, ["a"] * 50, [["a"]] * 50),
    "empty sets": ([["u"], ["v"]] * 30, ["a", "b"] * 30, [[]] * 60),
    "all covered": (*nothing_special()[:2], [CLASSES] * 60),
    "none covered": (*nothing_special()[:2], np.zeros((60, 3), dtype=bool)),
    "constant columns": (np.ones((60, 2)), *nothing_special()[1:]),
    "all NaN": (np.full((60, 2), np.nan), *nothing_special()[1:]),
    "infinite": nothing_special(c=np.where(np.arange(60) % 3, np.inf, -np.inf)),
    "huge": nothing_special(c=np.linspace(-1e300, 1e300, 60)),
    "500 categories": nothing_special(500, c=[f"level {i}" for i in range(500)]),
    "missing text": nothing_special(c=np.array([None, "u", "v"] * 20, dtype=object)),
}


@pytest.mark.parametrize("case", SMALL.values(), ids=SMALL)
def test_small_and_strange_data_get_an_answer(case, tmp_path):
    X, y, sets = case
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        result = audit(X, y, sets, classes=CLASSES, **FAST)
    assert result.status in ("finding", "low", "pass", "unclear")
    result.to_html(tmp_path / "report.html")
    result.to_json(tmp_path / "audit.json")
    assert json.loads((tmp_path / "audit.json").read_text()) == result.to_dict()
    for write, ending in ((result.to_html, ".html or .htm"), (result.to_json, ".json")):
        with pytest.raises(FaregError, match=f"must end in {ending}, got .pdf"):
            write(tmp_path / "audit.pdf")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["audit.json", "report.html"]


@pytest.mark.parametrize(
    ("name", "status"), [("1 row", "unclear"), ("all covered", "unclear"), ("none covered", "low")]
)
def test_verdicts(name, status):
    assert audit(*SMALL[name], classes=CLASSES, **FAST).status == status


def test_low_coverage_everywhere_is_said_without_a_group():
    rng = np.random.default_rng(0)
    covered = rng.random(200) < 0.5
    result = audit(np.zeros((200, 1)), ["a"] * 200, [["a"] if c else [] for c in covered], **FAST)
    assert (result.status, result.groups) == ("low", ())
    assert "no single group stands out" in result.verdict


def low_rows(north, south, n=1000):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"region": rng.choice(["north", "south"], n), "noise": rng.normal(size=n)})
    covered = rng.random(n) < np.where(X["region"] == "north", north, south)
    return X, ["a"] * n, [["a"] if c else [] for c in covered]


def test_broken_coverage_of_everyone_is_said_first_and_then_the_worst_group():
    result = audit(*low_rows(0.5, 0.8), **FAST)
    assert result.status == "low"
    told = str(result)
    assert told.startswith(f"Coverage below target: Sets cover {result.coverage:.1%} of everyone")
    assert "instead of 90%; the worst group is region = north, " in told


def test_everyone_who_is_equally_low_is_no_group():
    result = audit(*low_rows(0.7, 0.7), **FAST)
    assert result.status == "low"
    assert result.groups == ()
    assert result.to_dict()["main_group"] is None


def test_sets_that_are_all_empty_are_everyones():
    X, y, _ = low_rows(0.5, 0.5)
    result = audit(X, y, [[]] * len(y), classes=["a", "b"], **FAST)
    assert (result.status, result.coverage) == ("low", 0)
    assert result.groups == ()


def test_rows_of_few_clusters_are_too_few_clusters():
    X, y, sets = low_rows(0.95, 0.95, n=300)
    for n, counted in ((1, "1 cluster"), (4, "4 clusters")):
        told = str(audit(X, y, sets, clusters=np.arange(300) % n, **FAST))
        assert told.startswith(
            "Too few clusters to tell whether a group is left out: "
            f"300 rows in {counted} cannot show"
        )
        assert "rows of more clusters" in told
        assert "1 clusters" not in told


def test_no_group_is_suspected_whose_coverage_is_as_promised():
    X, y, sets = low_rows(0.93, 0.93)
    for seed in range(5):
        summary = audit(X, y, sets, **{**FAST, "random_state": seed}).to_dict()
        if summary["main_group"] is not None:
            assert summary["groups"][summary["main_group"]]["coverage"] < 0.9


def test_tiny_groups_are_not_proposed():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"id": [f"level {i // 5}" for i in range(1000)]})
    sets = [["a"] if c else [] for c in rng.random(1000) < 0.9]
    result = audit(X, ["a"] * 1000, sets, **FAST)
    assert all(group.rate.n >= 10 for group in result.groups)


def test_a_vanishing_p_value_is_not_called_zero():
    told = str(audit(*low_rows(0.0, 1.0), **FAST))
    assert "adjusted p < 0.0001" in told
    assert "p = 0" not in told


def test_infinite_values_are_noted():
    assert "infinite values count as missing in c" in str(audit(*SMALL["infinite"], **FAST))


def test_the_summary_is_plain_and_says_what_was_found():
    X, y, sets = some_rows(1000)
    result = audit(X, y, sets, classes=CLASSES, **FAST)
    assert isinstance(result, AuditResult)
    assert "region = north" in result.verdict
    assert str(result).startswith("Coverage below target: Sets cover ")
    assert "region = north" in repr(result)
    assert "\n" not in repr(result)
    summary = result.to_dict()
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    assert summary["groups"][summary["main_group"]]["rule"] == "region = north"
    assert summary["overall"]["coverage"] == result.coverage
    assert sum(row["n"] for row in summary["set_sizes"]) == 1000
    inside = [cell for cell in summary["picture"]["cells"] if cell["inside"] == 1]
    assert sum(cell["n"] for cell in inside) == (X["region"] == "north").sum()


def test_an_unwritable_path_is_one_sentence_and_leaves_nothing(tmp_path):
    result = audit(*SMALL["1 row"])
    for write in (result.to_html, result.to_json):
        with pytest.raises(FaregError, match="cannot write"):
            write(tmp_path / "missing" / "file")
        with pytest.raises(FaregError, match="it is a folder"):
            write(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"confidence_level": 90}, "did you mean 0.9"),
        ({"significance": 0}, "significance must be"),
        ({"n_directions": 0}, "n_directions must be"),
        ({"sensitive_features": ["nose"]}, "'nose', which is not a column"),
        ({"random_state": "x"}, "random_state must be"),
    ],
)
def test_bad_parameters_get_a_sentence(parameters, message):
    X, y, sets = some_rows(50)
    with pytest.raises(FaregError, match=message):
        audit(X, y, sets, classes=CLASSES, **parameters)


def test_a_level_is_told_once_and_not_with_every_other_feature():
    rng = np.random.default_rng(3)
    n = 3000
    X = pd.DataFrame({"age": rng.integers(18, 90, n), "sex": rng.choice(["F", "M"], n)})
    y = rng.choice(["a", "b"], n)
    covered = rng.random(n) < np.where(X["sex"] == "F", 0.8, 0.97)
    sets = [[label] if hit else [] for label, hit in zip(y, covered, strict=True)]
    result = audit(X, y, sets, measures=False, random_state=0)
    assert [str(group.rule) for group in result.findings] == ["sex = F"]
    worse = covered & ~((X["sex"] == "F") & (X["age"] > 70) & (rng.random(n) < 0.4)).to_numpy()
    sets = [[label] if hit else [] for label, hit in zip(y, worse, strict=True)]
    result = audit(X, y, sets, measures=False, random_state=0)
    # those who are worse off among them are said, too
    assert ("age", "sex") in {group.features for group in result.findings}


def test_groups_that_are_named_are_told():
    X, sets = [[float(i % 2)] for i in range(200)], [["a"]] * 200
    table = audit(X, ["a"] * 200, sets, groups=["x0 > 0.5"], random_state=0).table
    told = table[table["kind"] == "named"]
    assert told[["group", "n", "coverage"]].to_numpy().tolist() == [["x0 > 0.5", 100, 1.0]]
    with pytest.raises(FaregError, match="sensitive_features has no column y"):
        audit(X, ["a"] * 200, sets, groups=["y > 0.5"])


# --- worst slabs ---


def curve_of(covered_of, n=1500, **options):
    data, rng = make_metric_benchmark(n, random_state=0), np.random.default_rng(0)
    people = Audited(data.X, covered_of(data.group, rng), np.ones(n, dtype=np.int64))
    return slab_curve(people, rng=rng, **{"n_directions": 40, "n_permutations": 19, **options})


def test_a_region_among_ten_features_is_seen():
    curve = curve_of(lambda group, rng: rng.random(len(group)) < np.where(group, 0.6, 0.96))
    assert list(curve.columns) == list(SLABS)
    quadratic = curve[curve["measure"] == "WSC+"].set_index("delta")
    assert quadratic.index.tolist() == list(DELTAS)
    assert quadratic["p_value"].max() == 1 / 20
    assert quadratic.loc[0.2, "held_out"] < 0.8
    assert (quadratic["value"] < quadratic["null_low"]).all()


def test_slabs_are_consistent():
    curve = curve_of(lambda group, rng: rng.random(len(group)) < 0.9, n=400)
    assert (curve["held_out_low"] <= curve["held_out"]).all()
    assert (curve["held_out"] <= curve["held_out_high"]).all()
    assert (curve["null_low"] <= curve["null_high"]).all()
    for _, rows in curve.groupby("measure"):
        assert rows["value"].is_monotonic_increasing


@pytest.mark.parametrize("n", [2, 3, 10, 100])
def test_few_rows_have_slabs_and_without_permutations_there_is_no_band(n):
    curve = curve_of(lambda group, rng: rng.random(len(group)) < 0.5, n=n, n_permutations=0)
    assert len(curve) == 2 * len(DELTAS)
    assert curve["value"].notna().all()
    assert curve[["null_low", "null_median", "null_high", "p_value"]].isna().all(axis=None)
