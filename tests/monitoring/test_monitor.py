"""The monitor finds who lost coverage and since when, and counts nothing twice."""

import gc
import json
import os
import tracemalloc

import numpy as np
import pandas as pd
import pytest

import fareg
from fareg import CoverageMonitor, FaReGClassifier, FaregError, Rule, SplitConformalClassifier
from fareg.monitoring import _monitor

N = 1500


def people(n, seed, harder=()):
    """Return X, y and probabilities of the first class; rows in ``harder`` are often wrong."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {"sex": rng.choice(["f", "m"], n), "age": rng.integers(20, 80, n).astype(float)}
    )
    p = rng.beta(2, 2, n)
    truth = p.copy()
    inside = np.isin(np.arange(n), harder) & (X["sex"] == "f").to_numpy()
    truth[inside] = 1 - p[inside]
    y = np.where(rng.random(n) < truth, "a", "b")
    return X, y, np.column_stack([p, 1 - p])


def calibrated(method=None, decimals=None, **more):
    X, y, proba = people(N, 0)
    proba = proba if decimals is None else proba.round(decimals)
    method = method or FaReGClassifier(protect=[Rule.parse("sex = f")], random_state=0)
    return method.conformalize(X, y, proba=proba, **more)


@pytest.fixture(scope="module")
def clf():
    return calibrated()


def feed(monitor, table, step=500, start=0, when=None):
    X, y, proba = table
    for first in range(start, len(y), step):
        own = slice(first, first + step)
        monitor.update(X[own], y[own], None if when is None else when[own], proba=proba[own])
    return monitor


def names(monitor):
    return list(monitor.summary().index)


def test_a_change_is_found_where_it_is_and_its_end_too(clf):
    table = people(12_000, 1, harder=range(4000, 7000))
    monitor = feed(CoverageMonitor(clf, groups=["age > 50 and sex = m"]), table)
    found = {alarm.stream: alarm for alarm in monitor.alarms}
    assert set(found) == {"everyone", "sex = f"}
    alarm = found["sex = f"]
    assert 3900 < alarm.since < 4200
    assert alarm.since < alarm.row < 4400
    assert alarm.n_missed / alarm.n_rows > 0.2
    assert 7000 < alarm.back < 8000
    summary = monitor.summary()
    assert summary.loc["sex = f", "verdict"] == "holding"
    assert summary.loc["sex = f", "low"] < summary.loc["sex = f", "coverage"]
    while_low = feed(CoverageMonitor(clf), tuple(own[:5000] for own in table))
    assert while_low.summary().loc["sex = f", "verdict"].startswith("alarm since row 4,0")
    told = while_low.to_dict()
    everyone = "everyone" in {row["stream"] for row in told["streams"] if row["status"] == "alarm"}
    assert told["sentence"].startswith("Coverage is lost for everyone, ") == everyone
    assert ("the group's rows" in told["next_step"]) != everyone


def test_better_sets_raise_no_alarm(clf):
    X, _, proba = people(8000, 2)
    y = np.where(proba[:, 0] > 0.5, "a", "b")  # the most probable label is always right
    assert feed(CoverageMonitor(clf), (X, y, proba)).alarms == []


def test_an_alarm_is_about_coverage():
    """A third of the rows have scores higher than ever, and yet fewer than half are missed."""
    n, clf = (
        2000,
        calibrated(SplitConformalClassifier(conformity_score="lac", confidence_level=0.5)),
    )
    p = np.where(np.arange(n) % 3, 0.65, 0.01)
    monitor = CoverageMonitor(clf).update(
        people(n, 4)[0], np.full(n, "a"), proba=np.column_stack([p, 1 - p])
    )
    assert monitor._state.streams[0].wealth > 1000
    assert monitor.alarms == []


def test_calls_and_order_do_not_matter():
    """With scores that are tied, so that random numbers put them in order."""
    clf = calibrated(SplitConformalClassifier(conformity_score="lac"), decimals=1)
    X, y, proba = people(3000, 5, harder=range(1000, 1600))
    proba, mixed = proba.round(1), np.random.default_rng(0).permutation(3000)
    when = np.arange(3000)
    alone = CoverageMonitor(clf).update(X, y, when, proba=proba)
    parts = feed(CoverageMonitor(clf), (X, y, proba), step=777, when=when)
    apart = CoverageMonitor(clf).update(X.iloc[mixed], y[mixed], when[mixed], proba=proba[mixed])
    for other in (parts, apart):
        assert other.to_dict() == alone.to_dict()
        for own, its in zip(other._state.streams, alone._state.streams, strict=True):
            assert own.wealth == pytest.approx(its.wealth, rel=1e-9)
            assert not own.is_alarmed  # then bets would rest
            np.testing.assert_array_equal(own.wager.counts, its.wager.counts)


def test_late_rows_count_when_they_come(clf):
    table = people(400, 6)
    days = pd.date_range("2026-01-01", periods=400, freq="h", tz="Europe/Paris")
    monitor = feed(CoverageMonitor(clf), table, step=200, when=days)
    assert monitor.n_late == 0
    X, y, proba = people(50, 7)
    monitor.update(X, y, ["2026-01-02"] * 50, proba=proba)
    told = monitor.to_dict()
    assert (told["late"], told["rows"], told["last"]) == (50, 450, "2026-01-17 14:00:00")


def test_a_state_goes_on_as_if_nothing_had_happened(clf, tmp_path):
    table, path = people(6000, 8, harder=range(2000, 3000)), tmp_path / "state.json"
    kept = feed(CoverageMonitor(clf, groups=["age > 70"]), table, step=300)
    for first in range(0, 6000, 300):
        state = CoverageMonitor(clf, groups=["age > 70"])
        state = CoverageMonitor.load(path, clf) if path.exists() else state
        feed(state, tuple(own[: first + 300] for own in table), step=300, start=first).save(path)
    assert CoverageMonitor.load(path, clf).to_dict() == kept.to_dict()
    assert kept.alarms


def test_a_batch_is_not_counted_twice(clf, tmp_path):
    X, y, proba = people(300, 9)
    monitor = CoverageMonitor(clf).update(X, y, proba=proba, ids=range(300))
    monitor.save(tmp_path / "s.json")
    monitor, before = CoverageMonitor.load(tmp_path / "s.json", clf), monitor.to_dict()
    back = np.arange(300)[::-1]
    for own in (np.arange(300), back):
        with pytest.raises(FaregError, match="fed already"):
            monitor.update(X.iloc[own], y[own], proba=proba[own], ids=own)
    assert monitor.to_dict() == before
    monitor.update(X, y, proba=proba, ids=range(300, 600))  # other people
    assert monitor.n_rows == 600
    with pytest.raises(FaregError, match="these 300 rows were fed already, 2 batches ago; if"):
        monitor.update(X, y, proba=proba, ids=range(300))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"when": ["soon"] * 300}, "when must hold numbers or dates"),
        ({"when": [None] * 300}, "when must not be missing"),
        ({"when": [1] * 299}, "same number of rows"),
        ({"y": ["a"] * 299}, "same number of rows"),
        ({"proba": np.full((301, 2), 0.5)}, "same number of rows"),
        ({"X": people(300, 10)[0][["sex"]]}, "age"),
    ],
)
def test_a_failed_call_changes_nothing(clf, wrong, words):
    X, y, proba = people(300, 10)
    monitor = CoverageMonitor(clf, groups=["age > 50"])
    before = monitor.to_dict()
    with pytest.raises(FaregError, match=words):
        monitor.update(**{"X": X, "y": y, "proba": proba, **wrong})
    assert monitor.to_dict() == before


def test_two_writers_lose_nothing(clf, tmp_path):
    path = tmp_path / "state.json"
    tables = [people(200, seed) for seed in (11, 12, 13)]
    feed(CoverageMonitor(clf), tables[0]).save(path)
    first, second = (CoverageMonitor.load(path, clf) for _ in range(2))
    feed(first, tables[1]).save(path)
    with pytest.raises(FaregError, match="somebody else fed rows"):
        feed(second, tables[2]).save(path)
    with pytest.raises(FaregError, match="was not loaded from it"):
        CoverageMonitor(clf).save(path)
    assert CoverageMonitor.load(path, clf).n_rows == 400
    feed(first, tables[2]).save(path)
    assert os.listdir(tmp_path) == ["state.json"]


def test_a_state_that_cannot_be_written_stays(clf, tmp_path, monkeypatch):
    path = tmp_path / "state.json"
    monitor = feed(CoverageMonitor(clf), people(200, 11))
    monitor.save(path)
    before = path.read_bytes()

    def full(source, target):
        raise OSError(28, "No space left on device")

    feed(monitor, people(200, 12))
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(FaregError, match="the disk is full"):
        monitor.save(path)
    monkeypatch.undo()
    assert (path.read_bytes(), os.listdir(tmp_path)) == (before, ["state.json"])
    monitor.save(path)
    assert CoverageMonitor.load(path, clf).n_rows == 400


def test_states_of_others_are_refused(clf, tmp_path):
    path = tmp_path / "state.json"
    feed(CoverageMonitor(clf), people(900, 14)).save(path)
    other = calibrated(SplitConformalClassifier())
    with pytest.raises(FaregError, match="another model"):
        CoverageMonitor.load(path, other)
    text = path.read_text()
    state = json.loads(text)
    streams = state["streams"]
    damaged = [text[: len(text) // 2], "[]", "{}", "null", "[" * 10**5]
    damaged += [
        json.dumps({**state, name: value})
        for name in {*state} - {"first", "latest"}  # nothing is computed from these
        for value in (None, [3], {"a": 1})
    ]
    damaged += [
        json.dumps({**state, "streams": [{**streams[0], name: {"a": 1}}, *streams[1:]]})
        for name in {*streams[0]} - {"change", "since"}
    ]
    for text in damaged:
        path.write_text(text)
        with pytest.raises(FaregError, match=r"is not the state of|another model"):
            CoverageMonitor.load(path, clf).summary()


def test_what_the_model_does_not_know_is_learned_from_the_first_rows(clf):
    monitor = CoverageMonitor(clf, groups=["age > 50", Rule.parse("sex = f")])
    assert names(monitor).count("sex = f") == 1
    table = people(6000, 15, harder=range(3000, 6000))
    feed(monitor, tuple(own[:300] for own in table))
    assert monitor.summary().loc["age > 50", "verdict"].startswith("learning")
    feed(monitor, table, start=300)
    assert "age > 50" in {alarm.stream for alarm in monitor.alarms}


@pytest.mark.parametrize("method", fareg.classifiers.CLASSIFIERS)
def test_every_method_can_be_watched(method):
    monitor = feed(CoverageMonitor(calibrated(method(random_state=0))), people(600, 19))
    assert monitor.alarms == []
    assert monitor.summary().loc["everyone", "coverage"] > 0.8


def test_labels_cells_and_clusters():
    by_label = calibrated(SplitConformalClassifier(label_conditional=True))
    assert names(CoverageMonitor(by_label)) == ["everyone", "label a", "label b"]
    cells = calibrated(fareg.PartialConformalClassifier(sensitive_features=["sex"]))
    watched = CoverageMonitor(cells)
    assert names(watched) == ["everyone", "sex=m", "sex=f"]
    X, y, proba = people(400, 16)
    y[:100] = "c"  # a label that the model does not know is missed
    assert watched.update(X, y, proba=proba).alarms[0].row < 10
    grouped = calibrated(SplitConformalClassifier(), clusters=np.arange(N) // 3)
    X, y, proba = people(150, 17)
    told = CoverageMonitor(grouped).update(X, y, proba=proba, clusters=np.arange(150)).to_dict()
    assert told["streams"][0]["status"] == "learning"


def test_every_cluster_counts_once_and_is_not_forgotten():
    X, y, proba = people(N, 0)
    clf = calibrated(clusters=np.arange(N) // 3)
    monitor = CoverageMonitor(clf)
    with pytest.raises(FaregError, match="pass clusters, an id per row"):
        monitor.update(X, y, proba=proba)
    X, y, proba = people(900, 3)
    of_whom = np.random.default_rng(0).permutation(np.arange(900) // 3)
    monitor.update(X, y, np.arange(900), proba=proba, clusters=of_whom)
    assert monitor.n_rows == monitor.summary().loc["everyone", "rows"] == 300
    with pytest.raises(FaregError, match="these 900 rows were fed already, in the latest batch; "):
        monitor.update(X, y, np.arange(900), proba=proba, clusters=of_whom)
    X_new, y_new, proba_new = people(4000, 4, harder=range(1500, 4000))
    changed = CoverageMonitor(clf)
    changed.update(X_new, y_new, proba=proba_new, clusters=np.arange(4000))
    told = changed.to_dict()
    words = [row["verdict"] for row in told["streams"] if row["status"] == "alarm"]
    assert words
    assert all(w.startswith("alarm since drawn row 1,") for w in words)
    assert all(w.endswith("; one row per cluster counts") for w in words)
    assert "fareg calibrate" not in told["next_step"]
    assert "clf.recalibrated(X, y, clusters=...)" in told["next_step"]
    with pytest.raises(FaregError, match="clusters must not be missing, got 3 missing ids"):
        monitor.update(X, y, proba=proba, clusters=np.where(of_whom, of_whom, np.nan))


def test_the_page_shows_every_group_and_runs_nothing(clf, tmp_path):
    monitor = CoverageMonitor(clf, groups=['sex = "<script>alert(1)</script>"'])
    feed(monitor, people(3000, 18, harder=range(1000, 3000))).report(tmp_path / "watch.html")
    page = (tmp_path / "watch.html").read_text()
    assert "<script" not in page
    for name in ("everyone", "sex = f", "alarm since row", "&lt;script&gt;"):
        assert name in page


def test_refusals(clf, tmp_path):
    with pytest.raises(FaregError, match="conformalize"):
        CoverageMonitor(SplitConformalClassifier())
    with pytest.raises(FaregError, match="error"):
        CoverageMonitor(clf, error=5)
    with pytest.raises(FaregError, match="cannot read the rule"):
        CoverageMonitor(clf, groups=["everybody else"])
    with pytest.raises(FaregError, match="must end in"):
        CoverageMonitor(clf).save(tmp_path / "state.txt")


@pytest.mark.slow
def test_four_hundred_batches_take_no_more_memory_than_eighty(clf, tmp_path):
    path, sizes, memory = tmp_path / "s.json", [], []
    table, monitor = people(3200, 20), CoverageMonitor(clf, groups=["age > 50"])
    tracemalloc.start()
    for number in range(400):
        own = tuple(part[8 * number : 8 * number + 8] for part in table)
        monitor = feed(monitor, own)
        if number % 40 == 39:
            monitor.save(path)
            monitor = CoverageMonitor.load(path, clf)
            gc.collect()
            sizes.append(path.stat().st_size - 22 * len(monitor._state.known))
            memory.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert monitor.n_rows == 3200
    assert max(sizes) < 1.5 * sizes[1]
    assert max(memory) - memory[1] < 200_000  # a hundred bytes or two per known batch
    assert _monitor.MOST_KNOWN < 10**4
