"""Counts of covered rows: exact if rows are independent, valid if they come in clusters."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.stats import betabinom, binom, binomtest

from fareg import (
    FaregError,
    FaregWarning,
    ProbabilityColumns,
    Rule,
    SplitConformalClassifier,
    audit,
)
from fareg.auditing import RowLevels, compare_sets
from fareg.auditing._rate import Audited, Count, Promise
from fareg.auditing._reading import read_clusters, warn_of_repeats
from fareg.auditing._search import SearchPlan, _Proposer, search
from fareg.metrics import clopper_pearson

NINETY = Promise(0.9)
FALSE_ALARM = 1e-4


@pytest.mark.parametrize("clusters", [None, np.arange(200)])
def test_independent_rows_get_the_binomial_test(clusters):
    covered = np.arange(200) < 170
    count = Count.of(covered, clusters)
    assert count.p_value(NINETY) == pytest.approx(binomtest(170, 200, 0.9, "less").pvalue)
    assert count.interval() == pytest.approx(tuple(map(float, clopper_pearson(170, 200))))
    assert count.coverage == 0.85


def test_the_average_over_draws_equals_many_draws():
    rng = np.random.default_rng(0)
    clusters = np.sort(rng.integers(0, 60, 200))
    covered = rng.random(200) < 0.7
    people = Audited(pd.DataFrame(index=range(200)), covered, np.ones(200, dtype=int), clusters)
    counts = []
    for _ in range(4000):
        rows = people.one_of_each_cluster(rng)
        assert len(rows) == len(np.unique(clusters))
        counts.append(rows.covered.sum())
    count = Count.of(covered, clusters)
    drawn = binom.cdf(counts, count.n, 0.9)
    error = 5 * drawn.std() / np.sqrt(len(drawn))
    assert count.p_value(NINETY) == pytest.approx(2 * drawn.mean(), abs=2 * error)
    assert count.coverage == pytest.approx(np.mean(counts) / count.n, abs=0.01)


def test_copies_add_nothing():
    covered = np.arange(100) < 80
    alone = Count.of(covered)
    copied = Count.of(np.repeat(covered, 10), np.repeat(np.arange(100), 10))
    assert copied.n == 100
    assert copied.coverage == alone.coverage
    assert copied.p_value(NINETY) == pytest.approx(2 * alone.p_value(NINETY))
    assert copied.interval()[0] < alone.interval()[0]
    assert copied.interval()[1] > alone.interval()[1]


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_intervals_reach_the_ends(share):
    low, high = Count.of(np.full(40, bool(share)), np.arange(40) // 2).interval()
    assert (low, high)[int(share)] == share
    assert low < high


def test_clustered_p_values_and_intervals_are_valid():
    """Rows of a cluster share most of their luck; clusters of many sizes."""
    rng = np.random.default_rng(1)
    repeats, small, missed = 400, 0, 0
    for _ in range(repeats):
        sizes = rng.integers(1, 12, 50)
        shared = np.repeat(rng.random(50), sizes)
        own = rng.random(len(shared))
        luck = np.where(rng.random(len(shared)) < 0.8, shared, own)
        count = Count.of(luck < 0.9, np.repeat(np.arange(50), sizes))
        small += count.p_value(NINETY) <= 0.1
        low, high = count.interval()
        missed += not low <= 0.9 <= high
    assert binomtest(small, repeats, 0.1, "greater").pvalue > FALSE_ALARM
    assert binomtest(missed, repeats, 0.05, "greater").pvalue > FALSE_ALARM


def test_people_who_lie_in_a_group_in_part_count_by_their_rows_in_it():
    """The promise is made to a random row of a random person, given that it lies in the group.

    Someone with one of ten rows in it counts a tenth, and is always missed there.
    """
    inside = np.r_[np.repeat([True] + [False] * 9, 1), np.ones(9, dtype=bool)]
    clusters = np.r_[np.zeros(10, dtype=int), np.arange(1, 10)]
    covered = np.r_[np.zeros(10, dtype=bool), np.ones(9, dtype=bool)]
    people = Audited(pd.DataFrame({"a": inside}), covered, np.ones(19, dtype=int), clusters)
    count = people.count(inside)
    assert (count.n, count.coverage) == (10, pytest.approx(9 / 9.1))


def test_p_values_are_valid_where_people_lie_in_a_group_in_part():
    """People with many rows in the group are covered more often, so that 90% are by weight."""
    rng = np.random.default_rng(5)
    repeats, small, missed = 400, 0, 0
    for _ in range(repeats):
        own = rng.integers(1, 12, 60)
        clusters = np.repeat(np.arange(60), own)
        few = rng.random(60) < 0.5  # of these, one row in five lies in the group
        inside = rng.random(len(clusters)) < np.where(few, 0.2, 1.0)[clusters]
        rate = np.where(few, 0.6, 0.96)  # (0.5 * 0.2 * 0.6 + 0.5 * 0.96) / 0.6 = 0.9
        luck = rng.random(60)[clusters]
        people = Audited(None, luck < rate[clusters], np.ones(len(clusters), int), clusters)
        count = people.count(inside)
        small += count.p_value(NINETY) <= 0.1
        low, high = count.interval()
        missed += not low <= 0.9 <= high
    assert binomtest(small, repeats, 0.1, "greater").pvalue > FALSE_ALARM
    assert binomtest(missed, repeats, 0.05, "greater").pvalue > FALSE_ALARM


def test_few_calibration_rows_make_the_count_beta_binomial():
    promise = Promise(0.9, 200)
    k = np.array([0, 850, 880, 1000])
    np.testing.assert_allclose(promise.at_most(k, 1000), betabinom.cdf(k, 1000, 181, 20))
    assert 0.85 < promise.least_coverage < 0.88
    assert Promise(0.9, 10**7).at_most(k, 1000)[2] == pytest.approx(binom.cdf(880, 1000, 0.9), 0.01)
    with pytest.raises(FaregError, match="n_calibration must be at least 9 at confidence level"):
        Promise(0.9, 8)
    Promise(0.9, 9)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_clusters_may_be_a_column_or_ids(frame):
    X = frame({"who": ["u", "v", "u"], "age": [1.0, 2.0, 3.0]})
    codes, others = read_clusters(X, "who")
    assert codes.tolist() == [0, 1, 0]
    assert others == [1]
    assert read_clusters(X, ["u", "v", "u"])[0].tolist() == [0, 1, 0]
    assert read_clusters(np.array([[7, 1], [8, 2], [7, 3]]), 0)[0].tolist() == [0, 1, 0]


@pytest.mark.parametrize("frame", [np.asarray, pd.DataFrame])
@pytest.mark.parametrize("selection", [None, [2], [-1], [1, 2]])
def test_positions_of_sensitive_features_are_those_of_the_table(frame, selection):
    """The rows where the last of three columns is 1 are covered half of the time."""
    rng = np.random.default_rng(0)
    who, others = np.repeat(np.arange(200), 2), rng.integers(2, size=(400, 2))
    X = frame(np.column_stack([who, others]).astype(float))
    sets = [["a"] if hit else [] for hit in rng.random(400) > others[:, 1] / 2]
    result = audit(
        X,
        ["a"] * 400,
        sets,
        sensitive_features=selection,
        clusters=0,
        measures=False,
        random_state=0,
    )
    name = "x2" if frame is np.asarray else "2"
    assert result.findings[0].rule == Rule.parse(f'"{name}" = 1')
    assert result.sensitive_features[-1] == name


def test_clusters_are_no_sensitive_feature():
    X = pd.DataFrame({"who": [1, 2, 1], "age": [1.0, 2.0, 3.0]})
    for selection in (["who"], [0], "who"):
        with pytest.raises(FaregError, match="must not include the clusters, got who"):
            audit(X, ["a"] * 3, [["a"]] * 3, clusters="who", sensitive_features=selection)


@pytest.mark.parametrize(
    ("clusters", "message"),
    [
        ("nobody", "clusters names 'nobody', which is not a column of X; columns:"),
        (["u", None, "v"], "must not be missing, got 1"),
        (["u"], "same number of rows"),
        ([["u"], ["v"], ["w"]], "one id per row"),
    ],
)
def test_bad_clusters_get_a_sentence(clusters, message):
    with pytest.raises(FaregError, match=message):
        read_clusters(pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [1, 2, 3]}), clusters)


@pytest.mark.parametrize(("n_rejecting", "adjusted"), [(3, 1.0), (4, 0.005), (20, 0.005)])
def test_a_finding_needs_a_fifth_of_the_halves_and_pays_for_all_of_them(n_rejecting, adjusted):
    """At least k = 4 of B = 20 halves reject: B / k times their k-th p-value (Meinshausen 2009)."""
    n = 400
    people = Audited(pd.DataFrame({"a": np.arange(n) % 2.0}), np.ones(n, bool), np.ones(n, int))
    rule, testing = Rule.parse("a = 1"), np.arange(n) < 200
    inside = rule.inside(people.columns)
    said = [(testing, [(inside, 0.001 if i < n_rejecting else 1.0)]) for i in range(20)]
    proposer = _Proposer(people, np.zeros(n), lambda *_: 1.0, 8, lambda _: inside)
    found = proposer._judged(rule, inside, said, SearchPlan(NINETY, 0.05, 20))
    assert found.adjusted_p_value == pytest.approx(adjusted)
    assert found.is_finding == (adjusted < 0.05)
    assert (found.n_found, found.rate.n) == (20, 100)


def copies(n, times, rng):
    X = pd.DataFrame({"sex": rng.choice(["f", "m"], n), "income": rng.normal(size=n)})
    covered = rng.random(n) < 0.9
    rows = np.repeat(np.arange(n), times)
    return X.iloc[rows].reset_index(drop=True), covered[rows], rows


def accused(columns, covered, seed, clusters=None):
    groups, _ = search(
        Audited(columns, covered, np.ones(len(covered), dtype=np.int64), clusters),
        SearchPlan(Promise(0.9), 0.05, 20),
        np.random.default_rng(seed),
    )
    return any(group.is_finding for group in groups)


def test_copies_of_rows_accuse_nobody_if_the_audit_knows_of_them():
    """Every row ten times: without clusters, nearly every audit of fair sets finds something."""
    told = untold = 0
    repeats = 15
    for seed in range(repeats):
        X, covered, clusters = copies(100, 10, np.random.default_rng(seed))
        columns = X.astype({"sex": object})
        told += accused(columns, covered, seed, clusters=clusters)
        untold += seed < 5 and accused(columns, covered, seed)
    assert binomtest(told, repeats, 0.05, "greater").pvalue > FALSE_ALARM
    assert untold >= 3


def test_copies_are_noticed_and_few_categories_are_not():
    rng = np.random.default_rng(0)
    X, covered, _ = copies(100, 10, rng)
    with pytest.warns(FaregWarning, match="900 of 1,000 rows equal an earlier row"):
        warn_of_repeats(X, covered)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_repeats(X[["sex"]], covered)
        warn_of_repeats(X.iloc[::10], covered[::10])
        ages = pd.DataFrame(
            {"age": rng.integers(18, 90, 3000), "sex": rng.choice(["f", "m"], 3000)}
        )
        warn_of_repeats(ages, np.zeros(3000))
        warn_of_repeats(ages[["age"]], np.zeros(3000))
        warn_of_repeats(pd.get_dummies(ages["age"]).rename(columns=str), np.zeros(3000))


def test_an_audit_of_clusters_says_so_and_counts_each_once():
    X, covered, clusters = copies(150, 4, np.random.default_rng(2))
    sets = np.column_stack([covered, ~covered])
    y = np.zeros(len(X), dtype=int)
    result = audit(
        X.assign(who=clusters),
        y,
        sets,
        classes=[0, 1],
        clusters="who",
        measures=False,
        random_state=0,
    )
    assert result.sensitive_features == ("sex", "income")
    assert "600 rows in 150 clusters" in str(result)
    of_sex = result.levels[result.levels["group"].str.startswith("sex")]
    assert (of_sex["n"].sum(), of_sex["n_clusters"].sum()) == (600, 150)
    assert result.coverage == pytest.approx(covered.mean())
    for group in result.groups:
        assert group.rate.n <= 4 * group.rate.n_clusters


def test_every_table_tells_the_same_coverage_by_cluster():
    """Large clusters are covered more often than small ones, and clusters lie in several groups.

    In each table the coverage of everyone is the mean over groups by share: one quantity for all.
    """
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 30, 200)
    clusters = np.repeat(np.arange(200), sizes)
    y, covered = rng.integers(0, 2, len(clusters)), rng.random(len(clusters)) < 0.9
    covered &= (sizes > 5)[clusters] | (rng.random(len(clusters)) < 0.5)
    sets = np.column_stack([y == 0, y == 1]) & covered[:, None]
    sex = rng.choice(["f", "m"], len(y))
    told = compare_sets(
        pd.DataFrame({"sex": sex}),
        y,
        {"before": sets, "after": sets},
        classes=[0, 1],
        predicted=y,
        confidence_level=0.9,
        names=("a", "b"),
        clusters=clusters,
        levels=RowLevels(rng.integers(0, 3, len(y)), 3, 1),
        measures=False,
        random_state=0,
    )
    by_cluster = np.mean([covered[clusters == one].mean() for one in range(200)])
    assert covered.mean() > by_cluster + 0.03  # counting rows would tell something else
    left, levels = told.left, told.story["rows"]
    everyone = [told.before["coverage"], told.after["coverage"], left.coverage]
    sexes = told.groups[told.groups["kind"] == "level"]
    tables = [sexes.rename(columns={"after": "coverage"}), left.levels, left.set_sizes]
    tables += [pd.DataFrame(told.by_label), pd.DataFrame(levels).assign(coverage=left.coverage)]
    everyone += [(table["share"] * table["coverage"]).sum() for table in tables]
    everyone += [sum(row["share"] * row["before"] for row in levels)]
    np.testing.assert_allclose(everyone, by_cluster, rtol=1e-12)
    assert all(row["before"] == row["coverage"] for row in told.by_label)
    women = told.groups.set_index("group").loc["sex=f"]
    weights, labels = 1 / sizes[clusters], sets.sum(axis=1)
    by_size = [told.before["mean_size"], left.table["mean_size"][0], told.groups["after_size"][0]]
    np.testing.assert_allclose(by_size, np.average(labels, weights=weights))
    weights = weights[sex == "f"]
    assert women["after_size"] == pytest.approx(np.average(labels[sex == "f"], weights=weights))
    assert women["after"] == pytest.approx(np.average(covered[sex == "f"], weights=weights))
    assert women["n_clusters"] == len(np.unique(clusters[sex == "f"])) < women["n"]
    assert (
        "every coverage is that of a random row of a random cluster" in told.to_dict()["notes"][-1]
    )
    assert told.to_dict()["overall"]["n_clusters"] == 200
    share, n_rows = f"{by_cluster:.1%}", f"{len(y):,} rows in 200 clusters"
    words = f"Coverage is {share} for a random row of a random cluster ({n_rows}, target"
    assert words in str(told)


def test_a_valid_predictor_is_not_accused_of_its_few_calibration_rows():
    """Coverage 88% is two points below what 200 calibration rows promise: no reason to accuse."""
    rng = np.random.default_rng(0)
    n = 6000
    X = pd.DataFrame({"sex": rng.choice(["f", "m"], n), "age": rng.integers(18, 80, n)})
    covered = rng.random(n) < 0.88
    sets, y = np.column_stack([covered, ~covered]), np.zeros(n, dtype=int)
    options = {"classes": [0, 1], "measures": False, "random_state": 0}
    assert audit(X, y, sets, **options).status == "low"
    told = audit(X, y, sets, n_calibration=200, **options)
    assert told.status != "low"
    assert not told.findings
    assert "calibrated on 200 rows" in str(told)
    assert "called low only if its whole 95% interval lies below that" in str(told)


@pytest.mark.slow
def test_a_fitted_model_is_not_accused_of_the_draw_of_its_calibration_rows():
    """Over many calibrations on 100 rows, a report calls hardly any valid model's coverage low.

    Without the allowance many more would be called low: the standard deviation of their coverage
    is three points.
    """
    rng = np.random.default_rng(0)
    n, low = 2000, []
    X, y = pd.DataFrame({"noise": rng.random(n)}), rng.choice(["a", "b", "c"], n)
    proba = rng.dirichlet([1, 1, 1], n)
    columns = {label: f"p_{label}" for label in "abc"}
    X = X.assign(**{columns[label]: proba[:, i] for i, label in enumerate("abc")})
    for seed in range(24):
        rows = rng.permutation(n)
        clf = SplitConformalClassifier(ProbabilityColumns(columns), random_state=seed)
        clf.conformalize(X.iloc[rows[:100]], y[rows[:100]])
        told = clf.report(X.iloc[rows[100:]], y[rows[100:]], measures=False)
        low.append((told.verdict["status"] == "low", told.left.high < 0.9))
    accused, below = np.mean(low, axis=0)
    assert accused <= 0.1
    assert below >= accused + 0.1


@pytest.mark.parametrize(
    ("n_calibration", "least"), [(None, 0.9), (8, 0.9), (9, 0.66), (999, 0.88)]
)
def test_too_few_calibration_rows_excuse_nothing(n_calibration, least):
    promise = Promise.of_fitted(0.9, n_calibration)
    assert promise.least_coverage == pytest.approx(least, abs=0.005)
    assert promise.of_share(0.0).least_coverage == 0.9
    assert promise.of_share(1.0) == promise


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "an exact binomial test on the rows outside, with"),
        ({"clusters": "who"}, "an exact binomial test on the rows outside that counts one row"),
        ({"n_calibration": 100}, "an exact beta-binomial test on the rows outside, with"),
    ],
)
def test_a_report_says_which_test_was_made(tmp_path, options, words):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.choice(list("uv"), 300), "who": np.arange(300) // 3})
    y = rng.choice(["no", "yes"], 300)
    result = audit(X, y, [[label] for label in y], measures=False, random_state=0, **options)
    result.to_html(tmp_path / "audit.html")
    assert words in (tmp_path / "audit.html").read_text()
