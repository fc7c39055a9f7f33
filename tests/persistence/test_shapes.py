"""Every estimator of the table comes back to the bit, and nothing of its state is unjudged."""

import ast
import inspect
import re
import sys
import warnings

import numpy as np
import pytest
import skops.io

from fareg.persistence._codec import ESTIMATORS, RECORDS, Writer
from fareg.persistence._shapes import FITTED, NOT_STORED, SHAPES
from fareg.persistence._skops import SkopsFile
from stored_zoo import CONFORMAL, ZOO, assert_same, dicts, read, stored


@pytest.mark.parametrize("name", ZOO)
def test_estimators_come_back_to_the_bit(name):
    thing = stored(name)
    assert thing.n_foreign == 0
    back = read(thing.node, thing.arrays)
    assert type(back) is type(thing.model)
    assert without_addresses(back) == without_addresses(thing.model)
    assert_same(thing.model, back, thing.table)


@pytest.mark.parametrize(
    "name", [name for name in ZOO if name not in ("logistic cv", "two logistic", "categories")]
)
def test_files_of_skops_are_read_alike_without_skops(name):
    thing = stored(name)
    back = SkopsFile(skops.io.dumps(thing.model)).read()
    assert_same(thing.model, back, thing.table)


def test_the_zoo_has_every_class_of_the_table():
    seen = {node.get("class") for name in ZOO for node in dicts(stored(name).node)}
    missing = SHAPES.keys() - seen
    assert missing <= {"_TemperatureScaling"}  # scikit-learn has it since 1.8


def test_conformal_classifiers_of_the_zoo_have_every_record_and_estimator():
    seen = {node.get("class") for name in CONFORMAL for node in dicts(stored(name).node)}
    assert {*RECORDS, *ESTIMATORS} <= seen


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n, s in SHAPES.items() if n != "_TemperatureScaling"])
def test_every_attribute_that_scikit_learn_sets_was_judged(name):
    shape, found = SHAPES[name], set()
    for cls in shape.cls.__mro__:
        if cls.__module__.startswith(("sklearn", "fareg")):
            tree = ast.parse(inspect.getsource(sys.modules[cls.__module__]))
            found |= {
                target.attr
                for owner in ast.walk(tree)
                if isinstance(owner, ast.ClassDef) and owner.name == cls.__name__
                for target in ast.walk(owner)
                if isinstance(target, ast.Attribute)
                and isinstance(target.ctx, ast.Store)
                and isinstance(target.value, ast.Name)
                and target.value.id == "self"
            }
    known = shape.defaults.keys() | shape.fitted.keys() | FITTED.keys() | NOT_STORED
    # What constructors set, what exists during training only, and what a file must not hold.
    known |= {"estimator", "estimator_params", "class_weight", "alpha", "loss", "radius"}
    known |= {"_in_fit", "_skl_callbacks", "_callback_fit_ctx", "_skl_callbacks_to_teardown"}
    known |= {"C", "l1_ratio", "warm_start", "offset_", "feature_count_"}
    assert found <= known


def test_an_estimator_that_stands_in_two_places_is_stored_once():
    thing = stored("frozen")
    again = [node for node in dicts(thing.node) if node.get("$") == "again"]
    assert again
    back = read(thing.node, thing.arrays)
    assert back.estimator is back.calibrated_classifiers_[0].estimator


def test_arrays_keep_their_layout_because_products_round_by_it():
    writer, array = Writer(), np.asfortranarray(np.arange(6.0).reshape(2, 3))
    back = read(writer.write(array, "array"), writer.arrays)
    np.testing.assert_array_equal(back, array)
    assert np.isfortran(back)


def test_what_is_not_in_the_table_is_foreign():
    from sklearn.base import clone
    from sklearn.svm import SVC

    thing = stored("scaler")
    odd = clone(thing.model).fit(thing.table)
    odd.more_ = 1
    calling = clone(thing.model).fit(thing.table)
    calling.transform = print
    logistic = stored("logistic")
    sparse = clone(logistic.model).fit(logistic.table, logistic.model.predict(logistic.table))
    for model in (SVC(), odd, calling, sparse.sparsify()):
        writer = Writer()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert writer.write(model, "model")["$"] == "foreign"
        assert writer.foreign == [model]


def without_addresses(model):
    return re.sub(" at 0x[0-9a-f]+", "", repr(model))
