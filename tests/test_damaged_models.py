"""Damaged and forged model files: one clear error or a model, and nothing is executed."""

import contextlib
import copy
import hashlib
import io
import json
import os
import sys
import warnings
import zipfile

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier

import fareg
from fareg._encoding import ordinal_encoder
from fareg.persistence import ModelFile, _archive, describe
from fuzzing import cases
from saved_models import (
    CLASSIFIERS,
    SPECIAL,
    X_CAL,
    X_TEST,
    Y_CAL,
    answers,
    asked_with,
    assert_same,
    conformal,
    special,
)

NAMES = sorted([*CLASSIFIERS, *SPECIAL])


@pytest.fixture(scope="module")
def small_file(tmp_path_factory):
    """Return the bytes of a small model with all entries, and the model."""
    numbers = X_CAL.select_dtypes("number").iloc[:, :2]
    model = FrozenEstimator(LogisticRegression().fit(numbers, Y_CAL))
    clf = fareg.FaReGClassifier(model, random_state=0)
    clf.conformalize(numbers[:300], Y_CAL[:300])
    path = tmp_path_factory.mktemp("small") / "m.fareg"
    fareg.save(clf, path, seen=(numbers[:300], Y_CAL[:300]))
    return path.read_bytes(), clf


def rezipped(content, change):
    """Return a file whose entries went through ``change``, a function of the dict of entries."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    entries = change(entries)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, entry in entries.items():
            archive.writestr(name, entry)
    return buffer.getvalue()


def resigned(content, change):
    """Return a file whose manifest was changed by someone who knows how checksums are made."""

    def edit(entries):
        manifest = json.loads(entries["manifest.json"])
        manifest.pop("checksum")
        manifest = change(manifest)
        listed = manifest.get("entries")
        for name in entries.keys() & (listed if isinstance(listed, dict) else ()):
            digest = hashlib.sha256(entries[name]).hexdigest()
            listed[name] = {"bytes": len(entries[name]), "sha256": digest}
        manifest["checksum"] = _archive.checksum(manifest)
        return {**entries, "manifest.json": json.dumps(manifest).encode()}

    return rezipped(content, edit)


def load_or_none(path, content, trusted=None):
    """Return the loaded model, None after a FaregError of one line; all else is a failure."""
    path.write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return fareg.load(path, trusted=trusted)
        except fareg.FaregError as error:
            if "\n" in str(error):
                raise
            return None


def test_truncated_files_are_one_error(small_file, tmp_path):
    content, _ = small_file
    for n in np.linspace(0, len(content) - 1, 200).astype(int):
        assert load_or_none(tmp_path / "m.fareg", content[:n]) is None


def test_flipped_bytes_give_an_error_or_the_same_model(small_file, tmp_path):
    content, clf = small_file
    rng = np.random.default_rng(0)
    tail = len(content) - 400  # the directory of the zip, where flips matter most
    positions = [*rng.integers(len(content), size=400), *range(tail, len(content))]
    n_same = 0
    for position in positions:
        changed = bytearray(content)
        changed[position] ^= int(rng.integers(1, 256))
        back = load_or_none(tmp_path / "m.fareg", bytes(changed))
        if back is not None:
            n_same += 1
            if n_same <= 5:
                assert_same(clf, back, X_TEST[clf.feature_names_in_])
            np.testing.assert_array_equal(back.thresholds_, clf.thresholds_)
    assert n_same < len(positions) / 4  # dates and flags of the zip; everything else is noticed


@pytest.mark.parametrize("entry", ["arrays.safetensors", "seen.safetensors"])
@pytest.mark.parametrize("read", [fareg.load, describe, ModelFile.open])
def test_every_entry_is_checked_by_whoever_opens_a_file(entry, read, small_file, tmp_path):
    def change(entries):
        return {**entries, entry: entries[entry][:-1] + bytes([entries[entry][-1] ^ 1])}

    path = tmp_path / "m.fareg"
    path.write_bytes(rezipped(small_file[0], change))
    with pytest.raises(fareg.FaregError, match=f"{entry} does not match its checksum"):
        read(path)


def test_swapped_and_missing_entries_are_one_error(small_file, tmp_path):
    content, _ = small_file
    path = tmp_path / "m.fareg"
    names = ["manifest.json", "arrays.safetensors", "seen.safetensors"]

    def swap(a, b):
        return lambda entries: {**entries, a: entries[b], b: entries[a]}

    for i, a in enumerate(names):
        assert load_or_none(path, rezipped(content, lambda e, a=a: {**e, a: b""})) is None
        drop = rezipped(content, lambda e, a=a: {k: v for k, v in e.items() if k != a})
        assert load_or_none(path, drop) is None
        for b in names[:i]:
            assert load_or_none(path, rezipped(content, swap(a, b))) is None
            if b != "manifest.json" and a != "seen.safetensors":
                assert load_or_none(path, resigned(rezipped(content, swap(a, b)), dict)) is None
    extra = rezipped(content, lambda e: {**e, "more.pkl": b"x"})
    assert load_or_none(path, extra) is None


def test_numbers_changed_without_the_right_checksum_are_noticed(small_file, tmp_path):
    def change(entries):
        arrays = safetensors.numpy.load(entries["arrays.safetensors"])
        largest = max(arrays, key=lambda name: arrays[name].size)
        arrays[largest] = np.nextafter(arrays[largest], 0)
        return {**entries, "arrays.safetensors": safetensors.numpy.save(arrays)}

    content = rezipped(small_file[0], change)
    assert load_or_none(tmp_path / "m.fareg", resigned(content, dict)) is not None
    assert load_or_none(tmp_path / "m.fareg", content) is None


def test_files_of_another_kind_are_one_error(small_file, tmp_path):
    path = tmp_path / "m.fareg"
    content, _ = small_file
    for other in (b"", b"PK", b"\x80\x04N.", os.urandom(5000), b"PK\x05\x06" + bytes(18)):
        assert load_or_none(path, other) is None
    assert load_or_none(path, rezipped(content, lambda e: {"a.txt": b"hello"})) is None
    assert load_or_none(path, rezipped(content, lambda e: {"manifest.json": b"[1, 2]"})) is None
    deep = b"[" * 100_000
    assert load_or_none(path, rezipped(content, lambda e: {**e, "manifest.json": deep})) is None


@pytest.mark.parametrize(
    ("format_", "words"),
    [
        (1, r"older fareg .*format 1.*fit the model again"),
        (2, r"older fareg .*format 2.*fit the model again"),
        (4, r"newer fareg .*format 4.*upgrade fareg"),
    ],
)
def test_files_of_other_formats_say_so(format_, words, small_file, tmp_path):
    path = tmp_path / "m.fareg"
    path.write_bytes(resigned(small_file[0], lambda m: {**m, "format": format_}))
    with pytest.raises(fareg.FaregError, match=words):
        fareg.load(path)


def test_a_zip_bomb_is_refused_before_it_unfolds(small_file, tmp_path):
    path = tmp_path / "m.fareg"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("manifest.json", b" " * 200_000_000)
    with pytest.raises(fareg.FaregError, match="claims more bytes"):
        fareg.load(path)


def parts_of(value, path=()):
    """Yield all values in nested JSON, with their paths."""
    yield path, value
    items = value.items() if isinstance(value, dict) else ()
    items = enumerate(value) if isinstance(value, list) else items
    for key, item in items:
        yield from parts_of(item, (*path, key))


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(["__class__", "predict_set", "NetworkLearner", "<U9999999", "O", "i8", "0"]),
)
REPLACEMENTS = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["$", "at", "items", "class", "x"]), inner, max_size=3),
        st.builds(lambda tag, of: {"$": tag, "of": of, "items": of, "at": of}, SCALARS, inner),
    ),
    max_leaves=5,
)


def edited(manifest, where, value):
    """Return the manifest with another value at a path."""
    manifest = copy.deepcopy(manifest)
    node = manifest
    for key in where[:-1]:
        node = node[key]
    node[where[-1]] = value
    return manifest


def manifest_of(content):
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return json.loads(archive.read("manifest.json"))


@cases(100)
@given(data=st.data(), value=REPLACEMENTS)
def test_edits_without_the_right_checksum_are_noticed(data, value, small_file, tmp_path):
    manifest = manifest_of(small_file[0])
    where = data.draw(st.sampled_from([path for path, _ in parts_of(manifest) if path]))
    changed = edited(manifest, where, value)
    assume(json.dumps(changed) != json.dumps(manifest))
    text = json.dumps(changed).encode()
    content = rezipped(small_file[0], lambda entries: {**entries, "manifest.json": text})
    assert load_or_none(tmp_path / "m.fareg", content) is None


@pytest.fixture(scope="module")
def small_files(tmp_path_factory):
    """Return by name the bytes of a small model, rows to ask it about and what is beside them."""
    names = ["Color", "Gender", "Feature 1"]
    rows, y = X_CAL[names].iloc[:150], Y_CAL[:150]
    model = make_pipeline(ordinal_encoder(), DecisionTreeClassifier(max_depth=2)).fit(rows, y)
    path = tmp_path_factory.mktemp("small") / "m.fareg"
    files = {}
    for name in NAMES:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", fareg.FaregWarning)
            fareg.save(small_model(name, model, rows, y), path)
        asked = asked_with(name, model, X_TEST[names].iloc[:20])
        files[name] = (path.read_bytes(), *asked)
    return files


def small_model(name, model, rows, y):
    """Return a classifier of this name that was fitted in no time."""
    if name in SPECIAL:
        return special(name, model, rows, y)
    clf = CLASSIFIERS[name](
        FrozenEstimator(model), random_state=0, label_conditional="Partial" in name
    )
    if isinstance(clf, fareg.PLCPClassifier):
        clf.set_params(max_iter=1, n_restarts=1)
    return clf.conformalize(rows, y)


RUNS_CODE = (
    "ctypes.dlopen",
    "exec",
    "os.exec",
    "os.fork",
    "os.posix_spawn",
    "os.system",
    "pickle.find_class",
    "subprocess.Popen",
)


@pytest.fixture(scope="module")
def events_of():
    """Return a function that calls another and tells which events in it could run code."""
    events, is_on = [], False

    def watch(event, arguments):
        if is_on and event in RUNS_CODE:
            events.append(event)

    def call(function, *arguments):
        nonlocal is_on
        events.clear()
        is_on = True
        try:
            return function(*arguments), list(events)
        finally:
            is_on = False

    sys.addaudithook(watch)
    return call


# Where an estimator was edited, it may refuse rows in the words of scikit-learn.
ESTIMATORS = ("estimator", "estimator_", "encoder_", "model", "models")


def assert_refused_or_harmless(path, content, rows, beside, events_of, refusals=fareg.FaregError):
    """Load an edited file: a FaregError or a classifier that answers; no code, no other error."""
    clf, events = events_of(load_or_none, path, content)
    assert not events
    with warnings.catch_warnings(), contextlib.suppress(fareg.FaregError):
        warnings.simplefilter("ignore")
        json.dumps(describe(path))
    with warnings.catch_warnings(), contextlib.suppress(refusals):
        warnings.simplefilter("ignore")
        if clf is not None:
            assert clf.predict_set(rows, **beside).shape == (len(rows), len(clf.classes_))
            answers(clf, rows, **beside)


NUMBERS = np.array([np.nan, np.inf, -np.inf, -1, 0, 1, 2, 1e3, 2**40, 1e300])


def edited_number(content, data, value):
    """Return a file with another number in an array, and whether that is of an estimator."""
    held = [
        inner["at"]
        for where, inner in parts_of(manifest_of(content))
        if isinstance(inner, dict) and inner.get("$") == "array" and set(where) & set(ESTIMATORS)
    ]

    def change(entries):
        arrays = safetensors.numpy.load(entries["arrays.safetensors"])
        names.append(data.draw(st.sampled_from(sorted(arrays))))
        array = arrays[names[0]]
        if array.size:
            with np.errstate(all="ignore"):
                array.flat[data.draw(st.integers(0, array.size - 1))] = value.astype(array.dtype)
        return {**entries, "arrays.safetensors": safetensors.numpy.save(arrays)}

    names = []
    return resigned(rezipped(content, change), dict), names[0] in held


@pytest.mark.timeout(120)
@cases(280)
@given(
    data=st.data(),
    name=st.sampled_from(NAMES),
    value=st.one_of(REPLACEMENTS, st.sampled_from(NUMBERS)),
)
def test_edits_with_the_right_checksum_are_refused_or_harmless(
    data, name, value, small_files, events_of, tmp_path
):
    content, *asked = small_files[name]
    if isinstance(value, np.floating):
        content, is_estimator = edited_number(content, data, value)
    else:
        paths = [path for path, _ in parts_of(manifest_of(content)) if path]
        where = data.draw(st.sampled_from(paths))
        content = resigned(content, lambda manifest: edited(manifest, where, value))
        is_estimator = bool(set(where) & set(ESTIMATORS))
    refusals = Exception if is_estimator else fareg.FaregError
    assert_refused_or_harmless(tmp_path / "m.fareg", content, *asked, events_of, refusals)


@pytest.mark.parametrize(
    ("where", "value"), [(("classes",), ["no", "yes"]), (("class",), "AFCPClassifier")]
)
def test_a_manifest_of_another_model_is_refused(where, value, small_files, tmp_path):
    path = tmp_path / "m.fareg"
    path.write_bytes(
        resigned(small_files["FaReGClassifier"][0], lambda manifest: edited(manifest, where, value))
    )
    with pytest.raises(fareg.FaregError, match=r"m\.fareg is damaged .*see class"):
        fareg.load(path)


def test_a_classifier_that_was_changed_after_fit_is_not_saved(tmp_path):
    clf = conformal().set_params(confidence_level=0.5)
    with pytest.raises(
        fareg.FaregError, match=r"cannot save .*confidence_level was changed after fit"
    ):
        fareg.save(clf, tmp_path / "m.fareg")
    assert os.listdir(tmp_path) == []
