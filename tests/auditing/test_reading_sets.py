"""Metrics, audit and shell read the columns of sets alike, and ask rather than guess."""

import itertools
import json
import re
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from typer.testing import CliRunner

from fareg import FaregWarning, audit
from fareg._validation import InvalidInputError
from fareg.auditing._reading import read_sets
from fareg.cli import app
from fareg.metrics import coverage_score, is_covered
from fareg.workflow import audit_file

LABELS = {
    "numbers from 0": [0, 1, 2],
    "numbers from 1": [1, 2, 3],
    "floats": [0.5, 1.0, 2.5],
    "negative": [-1, 0, 1],
    "text": ["high", "low", "mid"],
    "text of numbers": ["1", "10", "2"],
    "bool": [False, True],
}
N = 60
AGES = pd.DataFrame({"age": np.arange(N) % 7})


def drawn(labels, seed=0):
    """Return sorted classes, true labels, sets that mark them, and the coverage."""
    rng = np.random.default_rng(seed)
    codes = rng.permutation(np.arange(N) % len(labels))
    sets = rng.random((N, len(labels))) < 0.4
    covered = sets[np.arange(N), codes]
    return np.array(labels)[codes], sets, covered


@pytest.mark.parametrize("name", LABELS)
def test_metrics_and_audit_agree_on_every_kind_of_label(name):
    labels = LABELS[name]
    y, sets, covered = drawn(labels)
    for kind in (y, y.astype(object), y.tolist(), pd.Series(y)):
        for given in (sets, sets[:, :, None], sets.astype(int), pd.DataFrame(sets)):
            for classes in (None, labels, np.array(labels)):
                table = read_sets(given, kind, classes)
                np.testing.assert_array_equal(table.covered, covered)
                assert list(table.classes) == labels
                if np.ndim(given) == 2:
                    np.testing.assert_array_equal(is_covered(kind, given, classes=classes), covered)


@pytest.mark.parametrize("name", LABELS)
def test_columns_of_a_frame_may_have_any_order(name):
    labels = LABELS[name]
    y, sets, covered = drawn(labels)
    for order in itertools.permutations(range(len(labels))):
        names = pd.Index([labels[j] for j in order], dtype=object)
        texts = [str(name) for name in names]
        for frame in (
            pd.DataFrame(sets[:, order], columns=names),
            pd.DataFrame(sets[:, order], columns=texts),
            pl.DataFrame(sets[:, order], schema=texts),
        ):
            for classes in (None, labels):  # named columns are found by name
                np.testing.assert_array_equal(is_covered(y, frame, classes=classes), covered)
                np.testing.assert_array_equal(read_sets(frame, y, classes).covered, covered)


@pytest.mark.parametrize("name", [name for name in LABELS if name != "bool"])
def test_labels_that_do_not_occur_need_names_or_classes(name):
    labels = LABELS[name]
    y, sets, covered = drawn(labels)
    some = y != y[0]
    y, sets, covered = y[some], sets[some], covered[some]
    for ask in (is_covered, coverage_score, lambda y, sets: read_sets(sets, y)):
        for given in (sets, pd.DataFrame(sets), pl.DataFrame(sets)):
            with pytest.raises(InvalidInputError, match=r"3 columns .* 2 labels .* pass classes"):
                ask(y, given)
    texts = pd.DataFrame(sets, columns=[str(label) for label in labels])
    for given, classes in ((sets, labels), (texts, None)):
        np.testing.assert_array_equal(is_covered(y, given, classes=classes), covered)
        np.testing.assert_array_equal(read_sets(given, y, classes).covered, covered)


def test_text_of_whole_floats_names_whole_numbers():
    y, sets, covered = drawn([1, 2, 3])
    frame = pd.DataFrame(sets, columns=["1.0", "2.0", "3.0"])
    np.testing.assert_array_equal(is_covered(y, frame), covered)
    np.testing.assert_array_equal(is_covered(y.astype(float), frame), covered)
    np.testing.assert_array_equal(is_covered(y.astype(str), sets, classes=[1, 2, 3]), covered)


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["<=50K", ">50K"], ["in_<=50K", "in_>50K"]),
        (["high", "low", "mid"], ["high_in", "low_in", "mid_in"]),
        (["high", "low", "mid"], ["set[high]", "set[low]", "set[mid]"]),
        ([10, 11, 12], ["p_10", "p_11", "p_12"]),  # also what the names share is part of the label
        ([1, 2, 10], ["y=1", "y=2", "y=10"]),
        ([False, True], ["in_False", "in_True"]),
    ],
)
def test_a_common_prefix_or_suffix_is_stripped_and_said(labels, names):
    y, sets, covered = drawn(labels)
    for frame in (pd.DataFrame(sets, columns=names), pl.DataFrame(sets, schema=names)):
        with pytest.warns(FaregWarning, match="are read as labels"):
            np.testing.assert_array_equal(is_covered(y, frame), covered)
        with pytest.warns(FaregWarning, match="are read as labels"):
            table = read_sets(frame, y)
        np.testing.assert_array_equal(table.covered, covered)
        assert list(table.classes) == labels


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            ["p", "q", "r"],
            r"columns p, q, r, but none is a label of y \(high, low, mid\); name",
        ),
        (["in_LOW", "in_MID", "in_HIGH"], "name its columns after the labels"),
        (["low", "low", "mid"], "distinct names"),
    ],
)
def test_names_that_fit_no_label_are_refused(names, message):
    y, sets, _ = drawn(["high", "low", "mid"])
    frame = pd.DataFrame(sets, columns=names)
    for ask in (is_covered, coverage_score, lambda y, sets: audit(AGES, y, sets)):
        with pytest.raises(InvalidInputError, match=message):
            ask(y, frame)


def test_classes_that_contradict_the_names_are_refused():
    y, sets, covered = drawn(["high", "low", "mid"])
    frame = pd.DataFrame(sets, columns=["high", "low", "other"])
    with pytest.raises(InvalidInputError, match="high, low, other but classes are high, low, mid"):
        is_covered(y, frame, classes=["high", "low", "mid"])
    renamed = pd.DataFrame(sets, columns=["p", "q", "r"])  # these say nothing: places count
    np.testing.assert_array_equal(is_covered(y, renamed, classes=["high", "low", "mid"]), covered)


def test_two_ways_to_strip_are_not_guessed():
    y = np.array(["1", "11"] * 5)
    frame = pd.DataFrame(np.ones((10, 2), dtype=bool), columns=["a111", "a112"])
    with pytest.raises(InvalidInputError, match="name its columns after the labels"):
        is_covered(y, frame)


def test_lists_of_two_bools_for_bool_labels_are_not_guessed():
    with pytest.raises(InvalidInputError, match="pass marks as an array"):
        read_sets([[True, False], [False, True]], [True, False])
    assert read_sets([[True, True], [False, True]], [True, False]).covered.tolist() == [True, False]


def test_a_text_is_one_label_and_no_list_of_letters():
    y = np.array(["1", "2", "12"] * 20, dtype=object)
    for sets in (y.copy(), y.tolist(), pd.Series(y)):
        with pytest.raises(InvalidInputError, match="one list of labels per row, got '1' in row 0"):
            audit(AGES, y, sets)
    lists = np.empty(N, dtype=object)
    lists[:] = [[label] for label in y]
    assert read_sets(lists, y).covered.all()
    with pytest.raises(InvalidInputError, match="one list of labels per row, got <list_iterator"):
        audit(AGES, y, [iter([label]) for label in y])


class Read(Exception):
    """Carries the sets as the audit read them, so that nothing else has to be measured."""


@pytest.fixture
def shell(tmp_path, monkeypatch):
    """Return a function that tells how the audit of a file reads its sets."""

    def read_only(X, y, sets, *, classes, **options):
        raise Read(read_sets(sets, y, classes))

    def ask(table, sets):
        table.to_csv(tmp_path / "t.csv", index=False)
        with pytest.raises(Read) as stopped:
            audit_file(tmp_path / "t.csv", target="y", sets=sets)
        return stopped.value.args[0]

    monkeypatch.setattr("fareg.workflow._audit.audit", read_only)
    return ask


@pytest.mark.parametrize("name", LABELS)
@pytest.mark.parametrize("form", ["{}", "in_{}", "{}?"])
def test_the_shell_reads_columns_as_the_metrics_do(shell, name, form):
    labels = LABELS[name]
    y, sets, covered = drawn(labels)
    names = [form.format(label) for label in labels]
    table = pd.DataFrame(sets, columns=names).assign(y=y, **AGES)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        read = shell(table, names[::-1])  # reversed, because names count and not places
    np.testing.assert_array_equal(read.covered, covered)
    said = [str(w.message) for w in caught if "are read as labels" in str(w.message)]
    assert len(said) == (form != "{}")


def test_the_shell_refuses_names_that_fit_no_label(shell):
    y, sets, _ = drawn(["high", "low", "mid"])
    names = ["in_H", "in_L", "in_M"]
    with pytest.raises(InvalidInputError, match="name its columns after the labels"):
        shell(pd.DataFrame(sets, columns=names).assign(y=y, **AGES), names)


def test_the_shell_refuses_to_leave_out_a_column_with_the_same_prefix(shell):
    y, sets, _ = drawn(["high", "low", "mid"])
    names = ["in_high", "in_low", "in_mid"]
    with pytest.raises(InvalidInputError, match="column in_mid is named after a label"):
        shell(pd.DataFrame(sets, columns=names).assign(y=y, **AGES), names[:2])


@pytest.mark.parametrize(
    ("sets", "sentence"),
    [([], "either the columns of the sets or a model, got none"), (["y"], "the target y cannot")],
)
def test_the_shell_refuses_sets_of_no_column_or_of_the_target(shell, sets, sentence):
    y, _, _ = drawn(["high", "low", "mid"])
    with pytest.raises(InvalidInputError, match=sentence):
        shell(AGES.assign(y=y), sets)


def test_the_shell_refuses_sets_without_columns_of_people(shell):
    with pytest.raises(InvalidInputError, match="to look for a group; add columns"):
        shell(pd.DataFrame({"y": ["a", "b"], "set": ["a", "a|b"]}), ["set"])


def test_the_shell_looks_for_no_groups_in_a_column_that_differs_in_every_row(tmp_path):
    y, sets, _ = drawn(["high", "low"])
    table = AGES.assign(y=y, sets=["|".join(np.array(["high", "low"])[row]) for row in sets])
    table.insert(0, "number", np.arange(len(table)) + 82_050_000)
    table.to_csv(tmp_path / "t.csv", index=False)
    with pytest.warns(FaregWarning, match=r"number: different in every row, .* define no groups"):
        found = audit_file(tmp_path / "t.csv", target="y", sets=["sets"])
    assert found.sensitive_features == ("age",)


def test_the_shell_says_how_a_column_stays_beside_the_sets_of_fareg(tmp_path):
    columns = ["y", "set", "size", "top", "probability", "level", "group"]
    pd.DataFrame([["a", '["a"]', 1, "a", 0.5, 0, ""]], columns=columns).to_csv(tmp_path / "s.csv")
    with pytest.raises(InvalidInputError, match=r"has no column race; .*predict with keep=race"):
        audit_file(tmp_path / "s.csv", target="y", sets=["set"], sensitive=["race"])


def test_the_shell_reads_numbers_in_text_as_the_target_has_them(shell):
    y, sets, covered = drawn([1, 2, 3])
    written = ["|".join(f"{label}.0" for label in np.array([1, 2, 3])[row]) for row in sets]
    read = shell(AGES.assign(y=y, sets=written), ["sets"])
    np.testing.assert_array_equal(read.covered, covered)


def by_bars(labels):
    return "|".join(re.sub(r"([|\\])", r"\\\1", label) for label in labels)


@pytest.mark.parametrize("written", [by_bars, json.dumps])
@pytest.mark.parametrize(
    "labels",
    [
        ["high", "low", "mid"],
        ["BSc (Hons)", "MSc", "none (yet)"],
        ["(0, 10]", "(10, 20]", "[20, 30]"],
        ["Hispanic, any race", "Asian", "it's complicated"],
        ["élevé", "bas", "très bas"],
        ["a|b", "a\\", "\\|"],
    ],
    ids=lambda labels: labels[0],
)
def test_the_shell_reads_texts_with_bars_and_json_lists(shell, labels, written):
    y, sets, covered = drawn(labels)
    known = y != labels[1]  # sets may hold a label that no row has
    texts = [written(np.array(labels)[row].tolist()) for row in sets]
    read = shell(AGES.assign(y=y, sets=texts)[known], ["sets"])
    np.testing.assert_array_equal(read.covered, covered[known])
    np.testing.assert_array_equal(read.size, sets.sum(axis=1)[known])


@pytest.mark.parametrize("written", ["[1, 2.0]", "[1.0, 2]", '["01", 2e0]', "1|2", " 1.0 | 02"])
def test_the_shell_compares_numbers_in_sets_by_value(shell, written):
    y = ["1", "2.0", "1.00", "10"] * 15  # the target may be written in several ways, too
    read = shell(AGES.assign(y=y, sets=written), ["sets"])
    np.testing.assert_array_equal(read.covered, [True, True, True, False] * 15)


STRANGE = {
    "joined by commas": ",".join,
    "joined by semicolons": ";".join,
    "joined by slashes": "/".join,
    "a list of Python": str,
    "a tuple": lambda labels: str(tuple(labels)),
    "an array": lambda labels: str(np.array(labels)),
    "a list of numpy texts": lambda labels: str([np.str_(label) for label in labels]),
    "no quotation marks": lambda labels: f"[{', '.join(labels)}]",
    "a JSON object": lambda labels: json.dumps(dict.fromkeys(labels, True)),
}


@pytest.mark.parametrize("written", STRANGE)
def test_the_shell_refuses_texts_of_another_form_and_shows_one(shell, written):
    y, sets, _ = drawn(["high", "low", "mid"])
    texts = [STRANGE[written](np.array(["high", "low", "mid"])[row].tolist()) for row in sets]
    with pytest.raises(InvalidInputError) as refused:
        shell(AGES.assign(y=y, sets=texts), ["sets"])
    shown = re.match(r"column sets holds (.*) in row (\d+), which is not a set", str(refused.value))
    assert eval(shown[1]) == texts[int(shown[2]) - 1]
    fix = 'as JSON lists such as ["a", "b"] (in Python, json.dumps(list) of each), as a|b'
    assert fix in str(refused.value)


@pytest.mark.parametrize("sign", ["|", " | "])
@pytest.mark.parametrize(
    "labels",
    [[" <=50K", " >50K"], ["TRUE", "FALSE"], ["true", "false"], ["08", "09", "10"]],
    ids=lambda labels: labels[0],
)
def test_the_shell_reads_labels_that_csv_files_hold(shell, labels, sign):
    y, sets, covered = drawn(labels)
    texts = [sign.join(np.array(labels)[row]) for row in sets]
    read = shell(AGES.assign(y=y, sets=texts), ["sets"])
    np.testing.assert_array_equal(read.covered, covered)


def test_the_shell_tells_labels_apart_that_differ_by_a_blank(shell):
    y, sets, covered = drawn(["Pass", "Pass ", "Fail"])
    texts = ["|".join(np.array(["Pass", "Pass ", "Fail"])[row]) for row in sets]
    read = shell(AGES.assign(y=y, sets=texts), ["sets"])
    np.testing.assert_array_equal(read.covered, covered)
    np.testing.assert_array_equal(read.size, sets.sum(axis=1))


@pytest.mark.parametrize(
    "marks", [lambda one: one, lambda one: one.astype(int), lambda one: 0.1 + 0.8 * one]
)
def test_the_shell_refuses_marks_and_probabilities_of_one_label(shell, marks):
    y, sets, _ = drawn(["high", "low", "mid"])
    with pytest.raises(InvalidInputError, match=r"column low holds .* a column of True and False"):
        shell(AGES.assign(y=y, low=marks(sets[:, 0])), ["low"])


def test_words_for_missing_are_labels_and_only_an_empty_field_is_missing(shell):
    table = AGES.assign(y=["1", "NA", ""] * 20, sets='["1"]')
    with pytest.warns(FaregWarning, match="20 of 60 rows have no y"):
        assert shell(table, ["sets"]).covered.mean() == 0.5


def test_the_shell_refuses_marks_of_one_label_that_could_be_labels(shell):
    y, sets, _ = drawn([False, True])
    with pytest.raises(InvalidInputError, match="a column of True and False for each label"):
        shell(AGES.assign(y=y, yes=sets[:, 1]), ["yes"])


def test_the_command_line_says_how_it_read_a_prefix(tmp_path):
    y, sets, covered = drawn(["<=50K", ">50K"])
    names = ["in_<=50K", "in_>50K"]
    pd.DataFrame(sets, columns=names).assign(y=y, **AGES).to_csv(tmp_path / "t.csv", index=False)
    options = ["--target", "y", "--sets", ",".join(names), "--json"]
    done = CliRunner().invoke(app, ["audit", str(tmp_path / "t.csv"), *options])
    assert done.exit_code == 0, done.output
    told = json.loads(done.output)
    assert told["overall"]["coverage"] == pytest.approx(covered.mean())
    note = "columns in_<=50K, in_>50K of the sets are read as labels <=50K, >50K"
    assert note in told["warnings"]
    assert note in told["notes"]
