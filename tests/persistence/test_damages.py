"""What is stored contradicts itself: it is refused in words, and takes no memory.

A damage is a row of a table: in which stored thing, in objects of which class, which field is
changed, and how. It is done as by someone who knows the format, so no checksum finds it.
"""

import copy
import json
import tracemalloc

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import fareg
from fareg.persistence._codec import Writer
from fareg.persistence._shapes import SHAPES
from stored_zoo import dicts, forged, read, stored

MOST_BYTES = 100 << 20
REFUSALS = (ValueError, KeyError, TypeError, IndexError, AttributeError)


def first(value):
    """Put a value into the first place of an array."""

    def edit(array):
        array = array.copy()
        array.flat[0] = value
        return array

    return edit


def twice(array):
    return np.hstack([array, array])


def reverse(array):
    return array[::-1].copy()


def less(array):
    return array[1:]


def items(*values):
    return {"$": "tuple", "items": list(values)}


def objects(*values):
    return {"$": "values", "dtype": "object", "shape": [len(values)], "items": list(values)}


NAN = {"$": "float", "value": "nan"}
FAREG = [
    ("Sample", "score", first(np.nan), "see score"),
    ("Sample", "score", np.float32, "see score"),
    ("Sample", "score", lambda a: a[:9], "see levels"),
    *(("Sample", "n_labels", value, "see n_labels") for value in (2**40, 2, 0, True)),
    ("LevelThresholds", "row_levels", first(99), "see levels"),
    ("LevelThresholds", "row_levels", first(-2), "see levels"),
    ("LevelThresholds", "row_levels", np.float64, "see levels"),
    ("LevelThresholds", "row_levels", less, "see levels"),
    ("LevelThresholds", "alpha", 0.2, "see alpha"),
    ("Mondrian", "cells", first(1), "see cells"),
    ("Mondrian", "cells", first(-3), "see cells"),
    ("Mondrian", "alpha", 0.2, "see alpha"),
    ("DisadvantageLevels", "edges", reverse, "see edges"),
    ("DisadvantageLevels", "edges", first(np.nan), "see edges"),
    ("DisadvantageLevels", "edges", lambda a: np.linspace(0, 1, 2000), "see n_levels"),
    ("DisadvantageLevels", "grid", lambda a: a[:0], "see grid"),
    ("DisadvantageLevels", "grid", first(np.nan), "see grid"),
    ("KernelSum", "columns", first(99), None),
    ("KernelSum", "centres", lambda a: a[:, :0], None),
    ("Union", "parts", [], None),
    ("Members", "rule", None, None),
    ("Rule", "conditions", [], None),
    ("Condition", "feature", "nobody", None),
    ("Condition", "feature", 3, None),
    ("Condition", "levels", items(1), "see levels"),
    ("Condition", "levels", items("x"), "see named_groups_"),
    ("Condition", "low", NAN, "see (low and high|protected_)"),  # whichever is compared first
    ("Condition", "missing", "yes", "see conditions"),
    ("NamedGroup", "coverage", "low", "see named_groups_"),
    ("Disadvantage", "constant", NAN, None),
    ("Disadvantage", "weights", items(), None),
    ("Disadvantage", "columns", items("p"), None),
    ("Disadvantage", "features", items("nobody"), "see features"),
    ("Signal", "p_value", 7.0, "see signal"),
    ("ColumnReading", "name", "q", None),
    ("ColumnReading", "codes", {"x": [1]}, "see readings"),
    ("FaReGClassifier", "confidence_level", 0.5, "see alpha_"),
    ("FaReGClassifier", "confidence_level", 5, "confidence_level must be in"),
    ("FaReGClassifier", "learn_from", "both", "learn_from must be one of"),
    ("FaReGClassifier", "n_levels", 10**6, "n_levels must be"),
    ("FaReGClassifier", "label_conditional", True, "see n_labels"),
    ("FaReGClassifier", "n_calibration_", 3, "see n_calibration_"),
    ("FaReGClassifier", "column_kinds_", True, "see column_kinds_"),
    ("FaReGClassifier", "excluded_", [7], "see excluded_"),
    ("FaReGClassifier", "sensitive_kinds_", {"p": "x"}, "see sensitive_kinds_"),
    ("FaReGClassifier", "protected_", items(None), "see protected_"),
    ("FaReGClassifier", "named_groups_", items(None), "see named_groups_"),
]
OTHERS = [
    ("fareg by label", "Sample", "labels", first(2), "see labels"),
    ("fareg by label", "Sample", "labels", first(-2), "see labels"),
    ("fareg by label", "Sample", "labels", None, "see n_labels"),
    ("fareg by label", "Sample", "n_labels", 2**40, "see n_labels"),
    ("fareg by label", "Sample", "n_labels", 3, None),
    ("fareg by label", "LabelLevels", "orders", items(), None),
    ("partial", "Mondrian", "cells", first(99), "see cells"),
    ("paper", "DrawnGroups", "members", np.int64, "see members"),
    ("paper", "DrawnGroups", "members", lambda a: a[:, 1:], "see members"),
    ("paper", "DrawnGroups", "members", lambda a: a[:1], "see n_draws"),
    ("paper", "DrawnGroups", "alpha", 0.2, "see alpha"),
    ("afcp", "SelectedLevels", "levels", first(99), "see levels"),
    ("condcp", "ConditionalQuantiles", "matrix", first(np.nan), "see matrix"),
    ("condcp", "ConditionalQuantiles", "matrix", less, "see matrix"),
    ("plcp", "RegionCells", "kept", first(99), None),
]
# Attributes of estimators: of another kind, or numbers that would leave their memory.
KINDS = [
    ("scaler", "StandardScaler", "transform", "fit"),  # hides a method
    ("scaler", "StandardScaler", "_sklearn_output_config", {"transform": "os"}),
    ("scaler", "StandardScaler", "__class__", "StandardScaler"),
    ("scaler", "StandardScaler", "mean_", {"$": "named", "name": "numpy.log"}),
    ("ridges", "Pipeline", "memory", "/tmp"),  # it would write files
    ("ridges", "Pipeline", "steps", []),
    ("function", "FunctionTransformer", "func", {"$": "named", "name": "os.system"}),
    ("function", "FunctionTransformer", "kw_args", {"out": 1}),
    ("forest", "RandomForestClassifier", "n_jobs", 100_000),
    ("forest", "RandomForestClassifier", "estimators_", []),
    ("forest", "RandomForestClassifier", "n_features_in_", 5),
    ("forest", "RandomForestClassifier", "n_classes_", 2**30),
    ("tree", "DecisionTreeClassifier", "n_outputs_", 2),
    ("boosting", "GradientBoostingClassifier", "n_trees_per_iteration_", 9),
    ("boosting", "GradientBoostingClassifier", "init_", None),
    ("histograms", "HistGradientBoostingClassifier", "_in_fit", True),
    ("histograms", "HistGradientBoostingClassifier", "n_features_in_", 9),
    ("histograms", "HistGradientBoostingClassifier", "n_trees_per_iteration_", 1),
    ("network", "MLPClassifier", "n_outputs_", 2**30),
    ("dummy", "DummyClassifier", "n_classes_", 2**30),
    ("columns", "ColumnTransformer", "verbose_feature_names_out", "{0.__class__}"),
    ("columns", "OneHotEncoder", "dtype", {"$": "named", "name": "os.system"}),
    ("dropped", "OneHotEncoder", "_drop_idx_after_grouping", objects(10**6, 0)),
    ("rare codes", "OrdinalEncoder", "categories_", []),
    ("targets", "TargetEncoder", "encodings_", []),
    ("codes", "OrdinalEncoder", "dtype", {"$": "named", "name": "dtype V1000000000"}),
]
NUMBERS = [
    ("rare", "OneHotEncoder", "_default_to_infrequent_mappings", first(10**6)),
    ("rare", "OneHotEncoder", "_infrequent_indices", first(-1)),
    ("two dropped", "OneHotEncoder", "categories_", reverse),
    ("categories", "_BinMapper", "bin_thresholds_", first(2**20)),
    ("categories", "_BinMapper", "is_categorical_", less),
    ("histograms", "HistGradientBoostingClassifier", "_baseline_prediction", twice),
    ("logistic", "LogisticRegression", "coef_", twice),
    ("dummy", "DummyClassifier", "class_prior_", first(-1)),
    ("tree", "DecisionTreeClassifier", "left_child", first(10_000)),
    ("tree", "DecisionTreeClassifier", "left_child", first(-2)),
    ("tree", "DecisionTreeClassifier", "right_child", first(0)),
    ("tree", "DecisionTreeClassifier", "feature", first(3)),
    ("tree", "DecisionTreeClassifier", "feature", first(-1)),
    ("tree", "DecisionTreeClassifier", "values", lambda a: np.concatenate([a, a], axis=2)),
    ("tree", "DecisionTreeClassifier", "threshold", np.float32),
    ("histograms", "HistGradientBoostingClassifier", "left", first(10_000)),
    ("histograms", "HistGradientBoostingClassifier", "right", first(0)),
    ("histograms", "HistGradientBoostingClassifier", "feature_idx", first(77)),
    ("histograms", "HistGradientBoostingClassifier", "is_categorical", first(1)),
    ("histograms", "HistGradientBoostingClassifier", "n_nodes", first(0)),
    ("histograms", "HistGradientBoostingClassifier", "n_nodes", lambda a: a * 0),
    ("categories", "HistGradientBoostingClassifier", "bitset_idx", lambda a: a + 1000),
]
DAMAGES = [
    *(("fareg", *row) for row in FAREG),
    *OTHERS,
    *((*row, None) for row in KINDS),
    *((*row, "contradict each other") for row in NUMBERS),
]


def holders(node, cls, field):
    """Return the dicts of nested JSON that hold a field of a class, or where it would be added."""
    owners = [inner for inner in dicts(node) if inner.get("class") == cls]
    parts = [
        part
        for owner in owners
        for part in dicts({k: owner[k] for k in owner.keys() & PARTS})
        if field in part
    ]
    return parts or [owners[0][k] for k in owners[0].keys() & PARTS]


PARTS = {"fields", "state", "parameters", "fitted"}


def damage(node, arrays, cls, field, edit):
    """Change a field of every object of a class: an array by a function, or to another value."""
    for part in holders(node, cls, field):
        if not callable(edit):
            part[field] = edit
            continue
        for inner in dicts(part[field]):
            if inner.get("$") == "array" and 0 not in inner["shape"]:
                array = np.ascontiguousarray(edit(read(inner, arrays)))
                name = f"edited {len(arrays)}"
                arrays[name] = array
                inner |= {"at": name, "shape": list(array.shape), "transposed": False}


@pytest.mark.parametrize(("name", "cls", "field", "edit", "words"), DAMAGES)
def test_damages_are_refused_in_words_and_little_memory(name, cls, field, edit, words):
    thing = stored(name)
    node, arrays = copy.deepcopy(thing.node), dict(thing.arrays)
    damage(node, arrays, cls, field, edit)
    assert json.dumps(node) != json.dumps(thing.node)
    tracemalloc.start()
    with pytest.raises(REFUSALS, match=words) as caught:
        getattr(read(node, arrays), "check", int)()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "\n" not in str(caught.value)
    assert peak < MOST_BYTES


@pytest.mark.parametrize("name", ["fareg", "tree", "histograms"])
def test_what_is_not_damaged_is_read(name):
    thing = stored(name)
    read(copy.deepcopy(thing.node), dict(thing.arrays))


def test_a_damage_in_a_file_is_one_sentence_that_names_the_file(tmp_path):
    path = tmp_path / "m.fareg"
    fareg.save(stored("fareg").model, path)
    forged(path, lambda state, arrays: damage(state, arrays, "Sample", "score", first(np.nan)))
    with pytest.raises(fareg.FaregError, match=r"m\.fareg is damaged .*see score.*save the model"):
        fareg.load(path)


def test_parts_have_the_same_scores():
    thing = stored("fareg")
    node, arrays = copy.deepcopy(thing.node), dict(thing.arrays)
    (parts,) = (part for part in dicts(node) if part.get("class") == "Union")
    score = next(part for part in dicts(parts) if part.get("class") == "Mondrian")
    score = score["fields"]["sample"]["fields"]["score"]
    arrays["other"] = arrays[score["at"]] / 2
    score["at"] = "other"
    with pytest.raises(ValueError, match="see score"):
        read(node, arrays).check()


def text(dtype, n, shape=None):
    return {"$": "values", "dtype": dtype, "shape": shape or [n], "items": ["a"] * n}


def empty(shape):
    return {"$": "array", "at": "0", "shape": shape, "transposed": False}


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (text("<U262144", 400), "the size of its texts"),
        ({"$": "values", "dtype": "O", "shape": [2**40, 0], "items": []}, "an array"),
        (empty([2**40, 0]), "the shape of array 0"),
        ({"$": "named", "name": "os.system"}, "os.system"),
        ({"$": "object", "class": "os.system", "parameters": {}, "fitted": {}}, "os.system"),
        ({"$": "estimator", "class": "SVC", "state": {}, "id": 1}, "SVC"),
        ({"$": "view", "dtype": "O", "of": empty([2**40, 0])}, "a view of dtype"),
        ({"$": "generator", "class": "RandomState", "state": {}}, "generator"),
        ({"$": "partial", "of": [{"$": "named", "name": "object"}, [], {}]}, "a score"),
    ],
)
def test_nodes_that_ask_for_too_much_are_refused(node, words):
    with pytest.raises((ValueError, KeyError), match=words):
        read(node, {"0": np.empty((2**40, 0))})


@pytest.mark.parametrize("seed", [np.random.RandomState(1), np.random.default_rng(1)])
def test_generators_which_could_point_outside_themselves_are_not_stored(seed):
    assert Writer().write(make_pipeline(RandomForestClassifier(random_state=seed)), "model")
    assert Writer().write(seed, "seed") is None


@pytest.mark.parametrize("numbers", [np.array([7, 3], np.uint8), np.array([1, 0], bool)])
def test_numbers_that_wrap_when_they_are_subtracted_must_ascend_too(numbers):
    encoder = OneHotEncoder(handle_unknown="ignore").fit(np.sort(numbers)[:, None])
    encoder.categories_ = [numbers]
    with pytest.raises(ValueError, match="see categories_"):
        SHAPES["OneHotEncoder"].verify(encoder)


def test_estimators_are_not_stacked_without_end():
    thing = stored("scaler")
    node = thing.node
    for number in range(200, 320):
        state = {"steps": [{"$": "tuple", "items": ["a", node]}]}
        node = {"$": "estimator", "class": "Pipeline", "id": number, "state": state}
    with pytest.raises(ValueError, match="the depth of its parts"):
        read(node, thing.arrays)
