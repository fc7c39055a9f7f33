"""A calibration that contradicts itself is refused in one sentence, and asks for no memory."""

import tracemalloc

import numpy as np
import pytest

import fareg
from forging import forged
from stored_zoo import CONFORMAL, stored

MOST_BYTES = 100 << 20


def dicts(node):
    """Yield every dict in nested JSON."""
    if isinstance(node, dict):
        yield node
    inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    for part in inner:
        yield from dicts(part)


def records(node, cls):
    """Return the fields of all records of a class in nested JSON."""
    return [d["fields"] for d in dicts(node) if d.get("class") == cls and d["$"] == "record"]


def record(node, cls):
    """Return the fields of the first one."""
    return records(node, cls)[0]


def first(value):
    """Put a value into the first place of an array, as far as its type holds it."""

    def edit(array):
        flat = array.copy()
        flat.flat[0] = value
        return flat

    return edit


def refused(name, change, tmp_path, words):
    """Check that a file of the zoo is refused after a change, without much memory."""
    stored(name)
    path = tmp_path / "m.fareg"
    fareg.save(CONFORMAL[name], path)
    forged(path, change)
    tracemalloc.start()
    with pytest.raises(fareg.FaregError, match=f"m.fareg is damaged .*{words}") as caught:
        fareg.load(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "\n" not in str(caught.value)
    assert peak < MOST_BYTES


@pytest.mark.parametrize(
    ("name", "cls", "field", "edit", "words"),
    [
        ("fareg", "Sample", "score", first(np.nan), "see score"),
        ("fareg", "Sample", "score", np.float32, "see score"),
        ("fareg", "Sample", "score", lambda a: a[:9], "see levels"),
        ("fareg", "LevelThresholds", "row_levels", first(99), "see levels"),
        ("fareg", "LevelThresholds", "row_levels", first(-2), "see levels"),
        ("fareg", "LevelThresholds", "row_levels", np.float64, "see levels"),
        ("fareg", "LevelThresholds", "row_levels", lambda a: a[1:], "see levels"),
        ("fareg", "Mondrian", "cells", first(1), "see cells"),
        ("fareg", "Mondrian", "cells", first(-3), "see cells"),
        ("fareg", "DisadvantageLevels", "edges", lambda a: a[::-1].copy(), "see edges"),
        ("fareg", "DisadvantageLevels", "edges", first(np.nan), "see edges"),
        ("fareg", "DisadvantageLevels", "edges", lambda a: np.linspace(0, 1, 2000), "see n_levels"),
        ("fareg", "DisadvantageLevels", "grid", lambda a: a[:0], "see grid"),
        ("fareg", "DisadvantageLevels", "grid", first(np.nan), "see grid"),
        ("fareg", "KernelSum", "columns", first(99), ""),
        ("fareg", "KernelSum", "centres", lambda a: a[:, :0], ""),
        ("fareg by label", "Sample", "labels", first(2), "see labels"),
        ("fareg by label", "Sample", "labels", first(-2), "see labels"),
        ("partial", "Mondrian", "cells", first(99), "see cells"),
        ("paper", "DrawnGroups", "members", np.int64, "see members"),
        ("paper", "DrawnGroups", "members", lambda a: a[:, 1:], "see members"),
        ("paper", "DrawnGroups", "members", lambda a: a[:1], "see n_draws"),
        ("afcp", "SelectedLevels", "levels", first(99), "see levels"),
        ("condcp", "ConditionalQuantiles", "matrix", first(np.nan), "see matrix"),
        ("condcp", "ConditionalQuantiles", "matrix", lambda a: a[1:], "see matrix"),
        ("plcp", "RegionCells", "kept", first(99), ""),
    ],
)
def test_arrays_that_contradict_each_other(name, cls, field, edit, words, tmp_path):
    def change(state, arrays):
        found = [fields[field] for fields in records(state, cls)]
        node = next(array for array in found if 0 not in array["shape"])  # texts have no edges
        array = np.ascontiguousarray(edit(arrays[node["at"]]))
        arrays["edited"] = array
        node |= {"at": "edited", "shape": list(array.shape), "transposed": False}

    refused(name, change, tmp_path, words)


@pytest.mark.parametrize(
    ("name", "cls", "field", "value", "words"),
    [
        ("fareg", "Sample", "n_labels", 2**40, "see n_labels"),
        ("fareg", "Sample", "n_labels", 2, "see n_labels"),
        ("fareg", "Sample", "n_labels", 0, "see n_labels"),
        ("fareg", "Sample", "n_labels", True, "see n_labels"),
        ("fareg by label", "Sample", "n_labels", 2**40, "see n_labels"),
        ("fareg by label", "Sample", "n_labels", 3, ""),
        ("fareg by label", "Sample", "labels", None, "see n_labels"),
        ("fareg", "LevelThresholds", "alpha", 0.2, "see alpha"),
        ("fareg", "Mondrian", "alpha", 0.2, "see alpha"),
        ("paper", "DrawnGroups", "alpha", 0.2, "see alpha"),
        ("fareg", "Union", "parts", [], ""),
        ("fareg", "Members", "rule", None, ""),
        ("fareg", "Rule", "conditions", [], ""),
        ("fareg", "Condition", "feature", "nobody", ""),
        ("fareg", "Condition", "feature", 3, ""),
        ("fareg", "Condition", "levels", {"$": "tuple", "items": [1]}, "see levels"),
        ("fareg", "Condition", "low", {"$": "float", "value": "nan"}, "see low and high"),
        ("fareg", "Condition", "missing", "yes", "see conditions"),
        ("fareg", "NamedGroup", "coverage", "low", "see named_groups_"),
        ("fareg", "Disadvantage", "constant", {"$": "float", "value": "nan"}, ""),
        ("fareg", "Disadvantage", "weights", {"$": "tuple", "items": []}, ""),
        ("fareg", "Disadvantage", "columns", {"$": "tuple", "items": ["p"]}, ""),
        ("fareg", "Disadvantage", "features", {"$": "tuple", "items": ["nobody"]}, "see features"),
        ("fareg", "Signal", "p_value", 7.0, "see signal"),
        ("fareg", "ColumnReading", "name", "q", ""),
        ("fareg by label", "LabelLevels", "orders", {"$": "tuple", "items": []}, ""),
    ],
)
def test_values_that_contradict_each_other(name, cls, field, value, words, tmp_path):
    def change(state, arrays):
        for fields in records(state, cls) if cls == "Condition" else [record(state, cls)]:
            fields[field] = value

    refused(name, change, tmp_path, words)


def test_levels_of_one_order_too_few(tmp_path):
    def change(state, arrays):
        orders = record(state, "LabelLevels")["orders"]
        del orders["items"][1:]
        orders["items"] *= 3

    refused("fareg by label", change, tmp_path, "")


def test_the_words_of_a_named_group_are_those_of_the_table(tmp_path):
    def change(state, arrays):
        record(state["fitted"]["named_groups_"], "Condition")["levels"]["items"] = ["x"]

    refused("fareg", change, tmp_path, "see named_groups_")


def test_parts_have_the_same_scores(tmp_path):
    def change(state, arrays):
        node = record(record(state, "Union")["parts"], "Mondrian")["sample"]["fields"]["score"]
        arrays["other"] = arrays[node["at"]] / 2
        node["at"] = "other"

    refused("fareg", change, tmp_path, "see score")


def test_no_row_of_any_person_is_in_a_file(tmp_path):
    """What a file holds of people: ranks, codes, means; and values that drift is judged by."""
    stored("fareg")
    path = tmp_path / "m.fareg"
    fareg.save(CONFORMAL["fareg"], path)
    held = {}

    def note(state, arrays):
        held.update(state=state, arrays=arrays)

    forged(path, note)
    frames = [node for node in dicts(held["state"]) if node.get("$") == "frame"]
    assert frames == [held["state"]["fitted"]["groups_"]]
    n = CONFORMAL["fareg"].n_calibration_
    tables = [a.shape for a in held["arrays"].values() if a.ndim == 2 and len(a) >= n]
    assert tables == []
