"""Damaged and edited model files: one clear error or a model, and nothing is executed."""

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
from sklearn.linear_model import LogisticRegression

import fareg
from fareg.persistence import ModelFile, _archive, describe
from fuzzing import cases
from stored_zoo import CONFORMAL, PEOPLE, TOLD, answers, assert_same, stored

ARRAYS, SEEN = "arrays.safetensors", "seen.safetensors"


@pytest.fixture(scope="module")
def small_file(tmp_path_factory):
    """Return the bytes of a small model with all entries, and the model."""
    numbers, y = PEOPLE[["a", "b"]][:300], TOLD[:300]
    clf = fareg.FaReGClassifier(LogisticRegression(), random_state=0).fit(numbers, y)
    path = tmp_path_factory.mktemp("small") / "m.fareg"
    fareg.save(clf, path, seen=(numbers, y))
    return path.read_bytes(), clf


def entries_of(content):
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rezipped(content, change):
    """Return a file whose entries went through ``change``, a function of the dict of entries."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, entry in change(entries_of(content)).items():
            archive.writestr(name, entry)
    return buffer.getvalue()


def resigned(content, change=dict):
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


def load_or_none(path, content):
    """Return the loaded model, None after a FaregError of one line; all else is a failure."""
    path.write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return fareg.load(path)
        except fareg.FaregError as error:
            if "\n" in str(error):
                raise
            return None


# --- damages that the checksums find -----------------------------------------------------------


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
                assert_same(clf, back, PEOPLE[["a", "b"]])
            np.testing.assert_array_equal(back.thresholds_, clf.thresholds_)
    assert n_same < len(positions) / 4  # dates and flags of the zip; everything else is noticed


@pytest.mark.parametrize("entry", [ARRAYS, SEEN])
@pytest.mark.parametrize("read", [fareg.load, describe, ModelFile.open])
def test_every_entry_is_checked_by_whoever_opens_a_file(entry, read, small_file, tmp_path):
    def change(entries):
        return {**entries, entry: entries[entry][:-1] + bytes([entries[entry][-1] ^ 1])}

    path = tmp_path / "m.fareg"
    path.write_bytes(rezipped(small_file[0], change))
    with pytest.raises(fareg.FaregError, match=f"{entry} does not match its checksum"):
        read(path)


def test_swapped_and_missing_entries_are_one_error(small_file, tmp_path):
    content, path = small_file[0], tmp_path / "m.fareg"
    names = ["manifest.json", ARRAYS, SEEN]

    def swap(a, b):
        return lambda entries: {**entries, a: entries[b], b: entries[a]}

    for i, a in enumerate(names):
        assert load_or_none(path, rezipped(content, lambda e, a=a: {**e, a: b""})) is None
        drop = rezipped(content, lambda e, a=a: {k: v for k, v in e.items() if k != a})
        assert load_or_none(path, drop) is None
        for b in names[:i]:
            assert load_or_none(path, rezipped(content, swap(a, b))) is None
            if b != "manifest.json" and a != SEEN:
                assert load_or_none(path, resigned(rezipped(content, swap(a, b)))) is None
    assert load_or_none(path, rezipped(content, lambda e: {**e, "more.pkl": b"x"})) is None


def test_numbers_changed_without_the_right_checksum_are_noticed(small_file, tmp_path):
    def change(entries):
        arrays = safetensors.numpy.load(entries[ARRAYS])
        largest = max(arrays, key=lambda name: arrays[name].size)
        arrays[largest] = np.nextafter(arrays[largest], 0)
        return {**entries, ARRAYS: safetensors.numpy.save(arrays)}

    content = rezipped(small_file[0], change)
    assert load_or_none(tmp_path / "m.fareg", resigned(content)) is not None
    assert load_or_none(tmp_path / "m.fareg", content) is None


def test_files_of_another_kind_are_one_error(small_file, tmp_path):
    path, content = tmp_path / "m.fareg", small_file[0]
    for other in (b"", b"PK", b"\x80\x04N.", os.urandom(5000), b"PK\x05\x06" + bytes(18)):
        assert load_or_none(path, other) is None
    for manifest in (b"[1, 2]", b"[" * 100_000):
        changed = rezipped(content, lambda e, own=manifest: {**e, "manifest.json": own})
        assert load_or_none(path, changed) is None
    assert load_or_none(path, rezipped(content, lambda e: {"a.txt": b"hello"})) is None


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


def test_a_zip_bomb_is_refused_before_it_unfolds(tmp_path):
    path = tmp_path / "m.fareg"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("manifest.json", b" " * 200_000_000)
    with pytest.raises(fareg.FaregError, match="claims more bytes"):
        fareg.load(path)


# --- edits, with and without the right checksum ------------------------------------------------


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
    return json.loads(entries_of(content)["manifest.json"])


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
def files(tmp_path_factory):
    """Return by name the bytes of a model file, rows to ask it about and what is beside them."""
    path, found = tmp_path_factory.mktemp("files") / "m.fareg", {}
    for name in CONFORMAL:
        thing = stored(name)
        fareg.save(thing.model, path)
        beside = {key: value[:20] for key, value in thing.beside.items()}
        found[name] = (path.read_bytes(), thing.table[:20], beside)
    return found


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
NUMBERS = np.array([np.nan, np.inf, -np.inf, -1, 0, 1, 2, 1e3, 2**40, 1e300])


def edited_number(content, data, value):
    """Return a file with another number in an array, and whether that is of an estimator."""
    held = [
        inner["at"]
        for where, inner in parts_of(manifest_of(content))
        if isinstance(inner, dict) and inner.get("$") == "array" and set(where) & set(ESTIMATORS)
    ]
    arrays = safetensors.numpy.load(entries_of(content)[ARRAYS])
    name = data.draw(st.sampled_from(sorted(arrays)))
    array = arrays[name]
    if array.size:
        with np.errstate(all="ignore"):
            array.flat[data.draw(st.integers(0, array.size - 1))] = value.astype(array.dtype)
    changed = rezipped(content, lambda e: {**e, ARRAYS: safetensors.numpy.save(arrays)})
    return resigned(changed), name in held


@pytest.mark.timeout(240)
@cases(280)
@given(
    data=st.data(),
    name=st.sampled_from(sorted(CONFORMAL)),
    value=st.one_of(REPLACEMENTS, st.sampled_from(NUMBERS)),
)
def test_edits_with_the_right_checksum_are_refused_or_harmless(
    data, name, value, files, events_of, tmp_path
):
    """A FaregError or a classifier that answers; no code, no other error."""
    content, rows, beside = files[name]
    if isinstance(value, np.floating):
        content, is_estimator = edited_number(content, data, value)
    else:
        paths = [path for path, _ in parts_of(manifest_of(content)) if path]
        where = data.draw(st.sampled_from(paths))
        content = resigned(content, lambda manifest: edited(manifest, where, value))
        is_estimator = bool(set(where) & set(ESTIMATORS))
    path, refusals = tmp_path / "m.fareg", Exception if is_estimator else fareg.FaregError
    clf, events = events_of(load_or_none, path, content)
    assert not events
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with contextlib.suppress(fareg.FaregError):
            json.dumps(describe(path))
        with contextlib.suppress(refusals):
            if clf is not None:
                assert clf.predict_set(rows, **beside).shape == (len(rows), len(clf.classes_))
                answers(clf, rows, **beside)


@pytest.mark.parametrize(("where", "value"), [("classes", ["a", "b"]), ("class", "AFCPClassifier")])
def test_a_manifest_of_another_model_is_refused(where, value, files, tmp_path):
    path = tmp_path / "m.fareg"
    path.write_bytes(resigned(files["fareg"][0], lambda m: {**m, where: value}))
    with pytest.raises(fareg.FaregError, match=rf"m\.fareg is damaged .*see {where}"):
        fareg.load(path)
