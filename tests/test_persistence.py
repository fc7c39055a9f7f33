"""A model file gives back the same classifier to the bit, or one clear error."""

import contextlib
import copy
import errno
import functools
import io
import json
import os
import subprocess
import sys
import warnings
import zipfile

import lightgbm
import numpy as np
import pandas as pd
import pytest
import safetensors.numpy
import xgboost
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.tree import DecisionTreeClassifier

import fareg
from fareg._encoding import one_hot_encoder, ordinal_encoder
from fareg._files import replacing
from fareg.datasets import make_synthetic
from fareg.persistence import _archive, _foreign, describe
from fareg.scores import lac, raps

DATA = make_synthetic(2400, random_state=0)
X, Y = DATA.X, DATA.y
X_CAL, Y_CAL, X_TEST = X[800:2000], Y[800:2000], X[2000:]
SENSITIVE = list(DATA.sensitive)
TRAINED = make_pipeline(one_hot_encoder(), LogisticRegression()).fit(X[:800], Y[:800])
CLASSIFIERS = {
    "split": fareg.SplitConformalClassifier,
    "partial": fareg.PartialConformalClassifier,
    "exhaustive": fareg.ExhaustiveConformalClassifier,
    "afcp": fareg.AFCPClassifier,
    "condcp": fareg.CondCPClassifier,
    "plcp": fareg.PLCPClassifier,
    "fareg": fareg.FaReGClassifier,
    "paper": functools.partial(fareg.FaReGClassifier.paper, max_iter=30),
    "union on condcp": functools.partial(
        fareg.FaReGClassifier, construction="union", base=fareg.CondCPClassifier()
    ),
    "plcp as published": functools.partial(fareg.PLCPClassifier, calibration="reuse"),
}


def conformal(make=fareg.SplitConformalClassifier, estimator=TRAINED, **parameters):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fareg.FaregWarning)
        clf = make(FrozenEstimator(estimator), sensitive_features=SENSITIVE[:2], random_state=0)
        return clf.set_params(**parameters).conformalize(X_CAL, Y_CAL)


@pytest.fixture(scope="module")
def discovered():
    return conformal(fareg.FaReGClassifier)


def answers(clf, rows):
    """Return everything that a classifier says about rows."""
    told = {"predict": clf.predict(rows), "predict_set": clf.predict_set(rows)}
    for name in ("predict_p", "predict_group", "predict_region", "selected_features"):
        if hasattr(clf, name):
            try:
                told[name] = getattr(clf, name)(rows)
            except fareg.FaregError as error:  # a base without p-values
                told[name] = np.array(str(error))
    return told


def assert_same(first, second, rows=X_TEST):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fareg.FaregWarning)
        ours, theirs = answers(first, rows), answers(second, rows)
    assert ours.keys() == theirs.keys()
    for name in ours:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
    if hasattr(first, "groups_"):
        pd.testing.assert_frame_equal(first.groups_, second.groups_, check_exact=True)
        a, b = first.explain(), second.explain()
        assert (a.rule, a.features) == (b.rule, b.features)
        pd.testing.assert_frame_equal(a.ranking, b.ranking, check_exact=True)
        pd.testing.assert_frame_equal(a.traversal, b.traversal, check_exact=True)


def saved(clf, tmp_path, **options):
    path = tmp_path / "model.fareg"
    fareg.save(clf, path, **options)
    assert os.listdir(tmp_path) == ["model.fareg"], "nothing else may be left behind"
    return path


@pytest.mark.parametrize("label_conditional", [False, True])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_every_classifier_comes_back_to_the_bit(name, label_conditional, tmp_path):
    clf = conformal(CLASSIFIERS[name], label_conditional=label_conditional)
    back = fareg.load(saved(clf, tmp_path))
    assert type(back) is type(clf)
    assert vars(back).keys() == vars(clf).keys()
    assert_same(clf, back)
    kept = {k: v for k, v in clf.get_params(deep=False).items() if k not in ("estimator", "base")}
    assert {k: back.get_params(deep=False)[k] for k in kept} == kept


ESTIMATORS = {
    "forest": make_pipeline(ordinal_encoder(), RandomForestClassifier(8, random_state=0)),
    "extra trees": make_pipeline(one_hot_encoder(), ExtraTreesClassifier(8, random_state=0)),
    "hist boosting": make_pipeline(ordinal_encoder(), HistGradientBoostingClassifier(max_iter=5)),
    "boosting": make_pipeline(one_hot_encoder(), GradientBoostingClassifier(n_estimators=3)),
    "mlp": make_pipeline(one_hot_encoder(), MLPClassifier(max_iter=20, random_state=0)),
    "calibrated": CalibratedClassifierCV(make_pipeline(one_hot_encoder(), LogisticRegression())),
    "lightgbm": make_pipeline(
        ordinal_encoder(), lightgbm.LGBMClassifier(n_estimators=8, verbose=-1)
    ),
    "xgboost": make_pipeline(ordinal_encoder(), xgboost.XGBClassifier(n_estimators=8)),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_kind_of_estimator_comes_back_to_the_bit(name, tmp_path):
    y = np.unique(Y, return_inverse=True)[1] if name == "xgboost" else Y
    model = ESTIMATORS[name].fit(X[:800], y[:800])
    clf = fareg.FaReGClassifier(FrozenEstimator(model), random_state=0)
    clf.conformalize(X_CAL, y[800:2000])
    with warnings.catch_warnings():
        warnings.simplefilter("error", fareg.FaregWarning)
        path = saved(clf, tmp_path)
    assert_same(clf, fareg.load(path))


def test_native_categories_and_missing_values_come_back(tmp_path):
    table = X.copy()
    for name in SENSITIVE:
        table[name] = table[name].astype("category")
    table.iloc[::7, -1] = np.nan
    for model in (
        HistGradientBoostingClassifier(max_iter=5, categorical_features="from_dtype"),
        lightgbm.LGBMClassifier(n_estimators=5, verbose=-1),
    ):
        model.fit(table[:800], Y[:800])
        clf = fareg.SplitConformalClassifier(FrozenEstimator(model), random_state=0)
        clf.conformalize(table[800:2000], Y_CAL)
        assert_same(clf, fareg.load(saved(clf, tmp_path)), table[2000:])


def test_flags_and_dates_are_still_called_so(tmp_path):
    table = X_CAL.assign(
        hard=DATA.group[800:2000],
        born=pd.Timestamp("1980-01-31") + pd.to_timedelta(np.arange(1200) % 3, "D"),
    )
    model = make_pipeline(one_hot_encoder(), LogisticRegression()).fit(table, Y_CAL)
    clf = fareg.FaReGClassifier(FrozenEstimator(model), sensitive_features=["hard", "born"])
    clf.set_params(random_state=0, significance=None).conformalize(table, Y_CAL)
    figure = fareg.load(saved(clf, tmp_path)).plot_groups(features=("hard", "born"))
    labels = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert labels == ["hard=False", "hard=True"]
    labels = [text.get_text() for text in figure.axes[0].get_xticklabels()]
    assert labels == ["born=1980-01-31", "born=1980-02-01", "born=1980-02-02"]


def test_a_classifier_that_trained_its_estimator_keeps_the_untrained_one(tmp_path):
    clf = fareg.SplitConformalClassifier(RandomForestClassifier(5), random_state=0)
    numbers = X.select_dtypes("number")
    clf.fit(numbers, Y)
    back = fareg.load(saved(clf, tmp_path))
    assert_same(clf, back, numbers)
    assert not hasattr(back.estimator, "estimators_")
    assert back.estimator.n_estimators == 5


@pytest.mark.parametrize("labels", ["int", "bool", "str", "object"])
def test_labels_keep_their_type(labels, tmp_path):
    y = {
        "int": np.arange(400) % 3,
        "bool": np.arange(400) % 2 == 0,
        "str": np.array(["é", "b|c", "汉"])[np.arange(400) % 3],
        "object": pd.Series(["a", "b"] * 200, dtype=object),
    }[labels]
    table = np.random.default_rng(0).normal(size=(400, 3))
    clf = fareg.SplitConformalClassifier(LogisticRegression(), random_state=0).fit(table, y)
    back = fareg.load(saved(clf, tmp_path))
    assert back.classes_.dtype == clf.classes_.dtype
    assert_same(clf, back, table)


@pytest.mark.parametrize("seed", [None, 3, np.random.default_rng(1), np.random.RandomState(1)])
def test_random_states_are_kept(seed, tmp_path):
    clf = fareg.SplitConformalClassifier(FrozenEstimator(TRAINED), random_state=seed)
    back = fareg.load(saved(clf.conformalize(X_CAL, Y_CAL), tmp_path))
    assert_same(clf, back)
    if hasattr(seed, "bytes"):
        assert back.random_state.bytes(8) == seed.bytes(8)


def test_scores_of_the_package_are_stored_by_name(tmp_path):
    for score in ("lac", lac, functools.partial(raps, penalty=0.1)):
        clf = conformal(conformity_score=score)
        assert_same(clf, fareg.load(saved(clf, tmp_path)))


def own_score(proba, u):
    return 1 - proba


@pytest.mark.parametrize(
    ("parameter", "value"),
    [("conformity_score", own_score), ("sensitive_features", lambda table: table[["Color"]])],
)
def test_own_functions_are_refused_in_words(parameter, value, tmp_path):
    clf = conformal(fareg.PartialConformalClassifier, **{parameter: value})
    with pytest.raises(fareg.FaregError, match=rf"cannot save {parameter}=.*holds no code"):
        fareg.save(clf, tmp_path / "m.fareg")
    assert os.listdir(tmp_path) == []


class OwnModel(ClassifierMixin, BaseEstimator):
    def fit(self, X, y):
        self.classes_, counts = np.unique(y, return_counts=True)
        self.shares_ = counts / counts.sum()
        return self

    def predict_proba(self, X):
        return np.tile(self.shares_, (len(X), 1))

    def predict(self, X):
        return np.repeat(self.classes_[self.shares_.argmax()], len(X))


def test_unknown_types_are_refused_by_name(tmp_path):
    clf = conformal(estimator=OwnModel().fit(X, Y))
    name = f"{OwnModel.__module__}.OwnModel"
    sys.modules.setdefault(OwnModel.__module__, sys.modules[__name__])
    with pytest.warns(fareg.FaregWarning, match=f"trusted=.*{name}"):
        path = saved(clf, tmp_path)
    with pytest.raises(fareg.FaregError, match=f"not trusted: {name}"):
        fareg.load(path)
    assert_same(clf, fareg.load(path, trusted=[name]))
    assert_same(clf, fareg.load(path, estimator=clf.estimator_))
    with pytest.raises(fareg.FaregError, match="list of type names"):
        fareg.load(path, trusted=name)


def test_an_estimator_that_cannot_be_stored_is_left_out_in_words(tmp_path):
    model = make_pipeline(
        FunctionTransformer(lambda table: table.select_dtypes("number")), LogisticRegression()
    ).fit(X, Y)
    clf = conformal(estimator=model)
    with pytest.warns(fareg.FaregWarning, match="left out of the file.*estimator=model"):
        path = saved(clf, tmp_path)
    with pytest.raises(fareg.FaregError, match="holds no estimator"):
        fareg.load(path)
    assert_same(clf, fareg.load(path, estimator=model))


def test_without_its_estimator_a_file_asks_for_the_right_one(discovered, tmp_path):
    path = saved(discovered, tmp_path, include_estimator=False)
    assert not describe(path)["has_estimator"]
    with pytest.raises(fareg.FaregError, match=r"load\(path, estimator=model\)"):
        fareg.load(path)
    assert_same(discovered, fareg.load(path, estimator=FrozenEstimator(TRAINED)))
    other = make_pipeline(one_hot_encoder(), LogisticRegression()).fit(X, DATA.group)
    with pytest.raises(fareg.FaregError, match="has classes"):
        fareg.load(path, estimator=other)
    with pytest.raises(fareg.FaregError, match="takes 2 features"):
        fareg.load(path, estimator=LogisticRegression().fit(np.ones((len(Y), 2)), Y))
    with pytest.raises(fareg.FaregError, match="must be a fitted classifier"):
        fareg.load(path, estimator="model")


def test_only_fitted_classifiers_of_the_package_are_saved(tmp_path):
    with pytest.raises(fareg.FaregError, match="not conformalized yet"):
        fareg.save(fareg.FaReGClassifier(), tmp_path / "m.fareg")
    with pytest.raises(fareg.FaregError, match="takes a classifier of fareg"):
        fareg.save(TRAINED, tmp_path / "m.fareg")


def test_describe_tells_without_loading(discovered, tmp_path):
    told = describe(saved(discovered, tmp_path, metadata={"target": "y", "n": np.int64(3)}))
    assert told["class"] == "FaReGClassifier"
    assert told["columns"] == list(X.columns)
    assert told["classes"] == [str(label) for label in discovered.classes_]
    assert told["parameters"]["confidence_level"] == 0.9
    assert told["metadata"] == {"target": "y", "n": 3}
    assert [group["rule"] for group in told["groups"]] == list(discovered.groups_["rule"])
    json.dumps(told, allow_nan=False)


def test_the_same_model_gives_the_same_bytes(discovered, tmp_path):
    fareg.save(discovered, tmp_path / "a.fareg", include_estimator=False)
    fareg.save(discovered, tmp_path / "b.fareg", include_estimator=False)
    opened = (_archive.Archive.open(tmp_path / f"{name}.fareg") for name in "ab")
    with next(opened) as first, next(opened) as second:
        assert first.read("arrays.safetensors") == second.read("arrays.safetensors")
        assert first.manifest["state"] == second.manifest["state"]


# --- files that cannot be written ------------------------------------------------------------


def test_a_failed_write_leaves_the_old_file(discovered, tmp_path, monkeypatch):
    path = saved(discovered, tmp_path)
    before = path.read_bytes()

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(fareg.FaregError, match="the disk is full"):
        fareg.save(discovered, path)
    monkeypatch.undo()
    monkeypatch.setattr(os, "replace", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        fareg.save(discovered, path)
    assert os.listdir(tmp_path) == ["model.fareg"]
    assert path.read_bytes() == before


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_really_full_disk_is_one_error(tmp_path):
    def write():
        with replacing(tmp_path / "out") as temporary:
            temporary.symlink_to("/dev/full")
            temporary.write_bytes(b"x" * 10)

    with pytest.raises(fareg.FaregError, match="the disk is full"):
        write()
    assert os.listdir(tmp_path) == []


def test_bad_places_are_one_error(discovered, tmp_path):
    with pytest.raises(fareg.FaregError, match="it is a folder"):
        fareg.save(discovered, tmp_path)
    with pytest.raises(fareg.FaregError, match="there is no folder"):
        fareg.save(discovered, tmp_path / "no" / "m.fareg")
    with pytest.raises(fareg.FaregError, match="it is a folder"):
        fareg.load(tmp_path)
    with pytest.raises(fareg.FaregError, match="no such file"):
        fareg.load(tmp_path / "m.fareg")


# --- files that cannot be read ---------------------------------------------------------------


@pytest.fixture(scope="module")
def small_file(tmp_path_factory):
    """Return the bytes of a small model with all entries, and the model."""
    numbers = X_CAL.select_dtypes("number").iloc[:, :2]
    model = FrozenEstimator(LogisticRegression().fit(numbers, Y_CAL))
    clf = fareg.FaReGClassifier(model, random_state=0, n_restarts=1, significance=None)
    clf.conformalize(numbers[:300], Y_CAL[:300])
    path = tmp_path_factory.mktemp("small") / "m.fareg"
    fareg.save(clf, path)
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
            digest = _archive._digest(entries[name])
            listed[name] = {"bytes": len(entries[name]), "sha256": digest}
        manifest["checksum"] = _archive._checksum(manifest)
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


def test_truncated_files_are_one_error(small_file, tmp_path):
    content, _ = small_file
    for n in np.linspace(0, len(content) - 1, 200).astype(int):
        assert load_or_none(tmp_path / "m.fareg", content[:n]) is None


def test_flipped_bytes_give_an_error_or_the_same_model(small_file, tmp_path):
    content, clf = small_file
    rng = np.random.default_rng(0)
    tail = len(content) - 400  # the directory of the zip, where flips matter most
    positions = [*rng.integers(len(content), size=1200), *range(tail, len(content))]
    n_same = 0
    for position in positions:
        changed = bytearray(content)
        changed[position] ^= int(rng.integers(1, 256))
        back = load_or_none(tmp_path / "m.fareg", bytes(changed))
        if back is not None:
            n_same += 1
            if n_same <= 5:
                assert_same(clf, back, X_TEST[clf.feature_names_in_])
            np.testing.assert_array_equal(back.cuts_, clf.cuts_)
    assert n_same < len(positions) / 4  # dates and flags of the zip; everything else is noticed


def test_swapped_and_missing_entries_are_one_error(small_file, tmp_path):
    content, _ = small_file
    path = tmp_path / "m.fareg"
    names = ["manifest.json", "arrays.safetensors", "estimator.skops", "parts.skops"]

    def swap(a, b):
        return lambda entries: {**entries, a: entries[b], b: entries[a]}

    for i, a in enumerate(names):
        assert load_or_none(path, rezipped(content, lambda e, a=a: {**e, a: b""})) is None
        drop = rezipped(content, lambda e, a=a: {k: v for k, v in e.items() if k != a})
        assert load_or_none(path, drop) is None
        for b in names[:i]:
            assert load_or_none(path, rezipped(content, swap(a, b))) is None
            if b != "manifest.json":
                assert load_or_none(path, resigned(rezipped(content, swap(a, b)), dict)) is None
    extra = rezipped(content, lambda e: {**e, "more.pkl": b"x"})
    assert load_or_none(path, extra) is None


def test_files_of_another_kind_are_one_error(small_file, tmp_path):
    path = tmp_path / "m.fareg"
    content, _ = small_file
    for other in (b"", b"PK", b"\x80\x04N.", os.urandom(5000), b"PK\x05\x06" + bytes(18)):
        assert load_or_none(path, other) is None
    assert load_or_none(path, rezipped(content, lambda e: {"a.txt": b"hello"})) is None
    assert load_or_none(path, rezipped(content, lambda e: {"manifest.json": b"[1, 2]"})) is None
    deep = b"[" * 100_000
    assert load_or_none(path, rezipped(content, lambda e: {**e, "manifest.json": deep})) is None


def test_a_newer_format_says_so(small_file, tmp_path):
    path = tmp_path / "m.fareg"
    path.write_bytes(resigned(small_file[0], lambda m: {**m, "format": 2}))
    with pytest.raises(fareg.FaregError, match=r"newer fareg .*format 2.*upgrade fareg"):
        fareg.load(path)


def test_a_zip_bomb_is_refused_before_it_unfolds(small_file, tmp_path):
    path = tmp_path / "m.fareg"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("manifest.json", b" " * 200_000_000)
    with pytest.raises(fareg.FaregError, match="claims more bytes"):
        fareg.load(path)
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("schema.json", b" " * 200_000_000)
    bomb = rezipped(small_file[0], lambda e: {**e, "estimator.skops": inner.getvalue()})
    path.write_bytes(resigned(bomb, dict))
    with pytest.raises(fareg.FaregError, match="far more bytes"):
        fareg.load(path)


def nodes_of(value, path=()):
    """Yield the paths of all values in nested JSON."""
    yield path
    items = value.items() if isinstance(value, dict) else ()
    items = enumerate(value) if isinstance(value, list) else items
    for key, item in items:
        yield from nodes_of(item, (*path, key))


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(["__class__", "predict_set", "GroupLearner", "<U9999999", "O", "i8", "0"]),
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


many = functools.partial(
    settings,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
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


@many(max_examples=200)
@given(data=st.data(), value=REPLACEMENTS)
def test_edits_without_the_right_checksum_are_noticed(data, value, small_file, tmp_path):
    manifest = manifest_of(small_file[0])
    where = data.draw(st.sampled_from([path for path in nodes_of(manifest) if path]))
    changed = edited(manifest, where, value)
    assume(json.dumps(changed) != json.dumps(manifest))
    text = json.dumps(changed).encode()
    content = rezipped(small_file[0], lambda entries: {**entries, "manifest.json": text})
    assert load_or_none(tmp_path / "m.fareg", content) is None


@pytest.fixture(scope="module")
def small_files(tmp_path_factory):
    """Return a function that gives the bytes of a small model by name, and rows to ask it about."""
    names = ["Color", "Gender", "Feature 1"]
    rows, y = X_CAL[names].iloc[:150], Y_CAL[:150]
    model = make_pipeline(ordinal_encoder(), DecisionTreeClassifier(max_depth=2)).fit(rows, y)
    path = tmp_path_factory.mktemp("small") / "m.fareg"
    contents = {}
    for name, make in CLASSIFIERS.items():
        clf = make(FrozenEstimator(model), random_state=0, label_conditional=name == "partial")
        if name in ("fareg", "paper"):
            clf.set_params(max_iter=2, n_restarts=1, significance=None)
        if "plcp" in name:
            clf.set_params(max_iter=1, n_restarts=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", fareg.FaregWarning)
            fareg.save(clf.conformalize(rows, y), path)
        contents[name] = path.read_bytes()
    return lambda name: contents[name], X_TEST[names].iloc[:20]


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


def assert_refused_or_harmless(path, content, rows, events_of):
    """Load an edited file: a FaregError or a classifier that answers; no code, no other error."""
    clf, events = events_of(load_or_none, path, content)
    assert not events
    with warnings.catch_warnings(), contextlib.suppress(fareg.FaregError):
        warnings.simplefilter("ignore")
        json.dumps(describe(path))
        if clf is not None:
            assert clf.predict_set(rows).shape == (len(rows), len(clf.classes_))
            answers(clf, rows)


@pytest.mark.timeout(120)
@many(max_examples=400)
@given(data=st.data(), name=st.sampled_from(sorted(CLASSIFIERS)), value=REPLACEMENTS)
def test_edits_with_the_right_checksum_are_refused_or_harmless(
    data, name, value, small_files, events_of, tmp_path
):
    content_of, rows = small_files
    paths = [path for path in nodes_of(manifest_of(content_of(name))) if path]
    where = data.draw(st.sampled_from(paths))
    content = resigned(content_of(name), lambda manifest: edited(manifest, where, value))
    assert_refused_or_harmless(tmp_path / "m.fareg", content, rows, events_of)


@pytest.mark.timeout(120)
@many(max_examples=150)
@given(
    data=st.data(),
    name=st.sampled_from(sorted(CLASSIFIERS)),
    value=st.sampled_from(np.array([np.nan, np.inf, -np.inf, -1, 0, 1, 2, 1e3, 2**40, 1e300])),
)
def test_edited_numbers_with_the_right_checksum_are_refused_or_harmless(
    data, name, value, small_files, events_of, tmp_path
):
    content_of, rows = small_files

    def change(entries):
        arrays = safetensors.numpy.load(entries["arrays.safetensors"])
        array = arrays[data.draw(st.sampled_from(sorted(arrays)))]
        if array.size:
            with np.errstate(all="ignore"):
                array.flat[data.draw(st.integers(0, array.size - 1))] = value.astype(array.dtype)
        return {**entries, "arrays.safetensors": safetensors.numpy.save(arrays)}

    content = resigned(rezipped(content_of(name), change), dict)
    assert_refused_or_harmless(tmp_path / "m.fareg", content, rows, events_of)


@pytest.mark.parametrize(
    ("where", "value", "words"),
    [
        (("state", "parameters", "confidence_level"), 0.5, "see alpha_"),
        (("state", "parameters", "confidence_level"), 5, "confidence_level must be in"),
        (("state", "parameters", "construction"), "both", "construction must be one of"),
        (("state", "parameters", "construction"), "union", "see calibrations_"),
        (("state", "parameters", "label_conditional"), True, "see starts"),
        (("state", "parameters", "delta"), 0.7, "see learner_"),
        (("state", "fitted", "n_calibration_"), 3, "see n_calibration_"),
        (("state", "fitted", "column_kinds_"), True, "see column_kinds_"),
        (("state", "fitted", "reference_", "held"), {"Color": "date"}, "no columns held"),
        (("classes",), ["no", "yes"], "speaks of another model"),
        (("class",), "AFCPClassifier", "speaks of another model"),
    ],
)
def test_a_file_that_contradicts_itself_says_where(where, value, words, small_files, tmp_path):
    path = tmp_path / "m.fareg"
    content = small_files[0]("fareg")
    path.write_bytes(resigned(content, lambda manifest: edited(manifest, where, value)))
    with pytest.raises(fareg.FaregError, match=f"m.fareg is damaged .*{words}"):
        fareg.load(path)


def test_a_classifier_that_was_changed_after_fit_is_not_saved(tmp_path):
    clf = conformal().set_params(confidence_level=0.5)
    with pytest.raises(fareg.FaregError, match=r"cannot save .*see alpha_.*changed after fit"):
        fareg.save(clf, tmp_path / "m.fareg")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("seed", "where"),
    [
        (np.random.RandomState(1), ("state", "pos")),
        (np.random.Generator(np.random.MT19937(1)), ("state", "pos")),
        (np.random.Generator(np.random.Philox(1)), ("buffer_pos",)),
    ],
)
def test_generators_that_point_outside_themselves_are_refused(seed, where, tmp_path):
    content = saved(conformal(random_state=seed), tmp_path).read_bytes()
    where = ("state", "parameters", "random_state", "state", *where)
    for value in (-1, 10_000):
        outside = resigned(content, lambda manifest, v=value: edited(manifest, where, v))
        assert load_or_none(tmp_path / "m.fareg", outside) is None


def test_trees_that_point_outside_themselves_are_refused():
    forest = RandomForestClassifier(2, random_state=0).fit(np.eye(6), np.arange(6) % 2)
    boosting = HistGradientBoostingClassifier(max_iter=2, min_samples_leaf=1)
    boosting.fit(np.repeat(np.eye(6), 20, axis=0), np.repeat(np.arange(6) % 2, 20))
    _foreign.check_trees([forest, boosting])
    nodes = boosting._predictors[0][0].nodes
    for field, value in (
        ("left", 10_000),
        ("right", 0),
        ("feature_idx", 77),
        ("is_categorical", 1),
    ):
        before = nodes[field][0]
        nodes[field][0] = value
        with pytest.raises(ValueError, match="points outside"):
            _foreign.check_trees(boosting)
        nodes[field][0] = before
    tree = forest.estimators_[0].tree_
    state = tree.__getstate__()
    for field, value in (("left_child", 10_000), ("right_child", 0), ("feature", 6)):
        wrong = {**state, "nodes": state["nodes"].copy()}
        wrong["nodes"][field][0] = value
        tree.__setstate__(wrong)
        with pytest.raises(ValueError, match="points outside"):
            _foreign.check_trees({"a": [forest]})
        tree.__setstate__(state)
    forest.n_features_in_ = 5
    with pytest.raises(ValueError, match="points outside"):
        _foreign.check_trees(forest)


def test_neither_saving_nor_loading_ever_pickles(discovered, tmp_path, monkeypatch):
    import pickle

    def never(*args, **kwargs):
        raise AssertionError("pickle was used")

    for name in ("dump", "dumps", "load", "loads", "Unpickler", "Pickler"):
        monkeypatch.setattr(pickle, name, never)
    assert_same(discovered, fareg.load(saved(discovered, tmp_path)))


def test_prediction_with_a_loaded_model_needs_neither_torch_nor_matplotlib(discovered, tmp_path):
    path = saved(discovered, tmp_path)
    X_TEST[:5].to_csv(tmp_path / "rows.csv", index=False)
    code = (
        "import sys, pandas as pd, fareg\n"
        f"clf = fareg.load({str(path)!r}); X = pd.read_csv({str(tmp_path / 'rows.csv')!r})\n"
        "clf.predict_set(X); clf.predict_group(X); clf.predict_p(X)\n"
        "print(sorted({'torch', 'matplotlib', 'xgboost', 'lightgbm'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
