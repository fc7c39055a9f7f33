"""Files of strangers: without ``trusted=`` they run, write and import nothing."""

import functools
import io
import json
import os
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import skops.io
from sklearn.ensemble import StackingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import _scorer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from typer.testing import CliRunner

import fareg
from fareg.cli import app
from fareg.persistence import _skops, describe, read_estimator
from stored_zoo import NUMBERS, TWO, forged

ROWS = NUMBERS.to_numpy()


def conformal(model):
    """Return a classifier around a fitted model of ``ROWS``."""
    clf = fareg.SplitConformalClassifier(FrozenEstimator(model), random_state=0)
    return clf.conformalize(ROWS, TWO)


def saved(clf, path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fareg.FaregWarning)
        fareg.save(clf, path)
    return path


def writing_pipeline(path):
    """Return a classifier that writes bytes to a path when it predicts, made of scikit-learn."""
    stack = StackingClassifier([("a", LogisticRegression())]).fit(ROWS, TWO)
    stack.estimators_, stack.stack_method_ = [np.array([b"written"])], ["tofile"]
    answer = functools.partial(_scorer._cached_call, {"key": str(path)}, None, "key")
    return make_pipeline(FunctionTransformer(answer), stack)


@pytest.fixture
def honest(tmp_path):
    """Return the path of an honest file."""
    return saved(conformal(LogisticRegression().fit(ROWS, TWO)), tmp_path / "m.fareg")


def test_a_pipeline_that_writes_files_is_refused(tmp_path):
    mark = tmp_path / "mark"
    clf = conformal(LogisticRegression().fit(ROWS, TWO))
    clf.estimator_ = writing_pipeline(mark)
    path = saved(clf, tmp_path / "m.fareg")
    assert "StackingClassifier" in " ".join(describe(path)["untrusted"])
    with pytest.raises(fareg.FaregError, match=r"not trusted: .*StackingClassifier"):
        fareg.load(path)
    assert not mark.exists()


def rewritten(packed, change):
    """Return a file of skops whose nodes went through ``change``."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(packed)) as source, zipfile.ZipFile(out, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            if name == "schema.json":
                schema = json.loads(content)
                change(schema)
                content = json.dumps(schema)
            target.writestr(name, content)
    return out.getvalue()


def foreign(state, arrays):
    """Let an estimator come from the part that skops stored."""
    state["fitted"]["estimator_"] = {"$": "foreign", "at": 0, "id": 99}


def test_a_function_in_place_of_a_type_is_not_called(honest, tmp_path):
    """The types of keys are called while skops reads a dict."""
    mark = tmp_path / "mark"
    call = functools.partial(_scorer._cached_call, None, writing_pipeline(mark), "predict")

    def change(schema):
        named, call = schema["content"]
        named["key_types"] = {**named["key_types"], "content": [call], "__id__": 1}
        schema["content"] = [named]

    packed = rewritten(skops.io.dumps([{"x": 1}, call]), change)
    forged(honest, foreign, packed)
    (tmp_path / "m.skops").write_bytes(packed)
    for read_it in (lambda: fareg.load(honest), lambda: read_estimator(tmp_path / "m.skops")):
        with pytest.raises(fareg.FaregError, match=r"not trusted: .*functools\.partial"):
            read_it()
    assert "functools.partial" in describe(honest)["untrusted"]
    assert not mark.exists()
    skops.io.loads(skops.io.dumps(1))  # the attack itself works, where skops is told to trust it
    names = skops.io.get_untrusted_types(data=packed)
    with pytest.raises(AttributeError):
        skops.io.loads(packed, trusted=names)
    assert mark.read_bytes() == b"written"


def test_methods_in_place_of_types_are_named():
    def change(schema):
        named, array = schema["content"]
        method = {"__class__": "ndarray", "__module__": "numpy", "__loader__": "MethodNode"}
        method["content"] = {"func": "tofile", "obj": array}
        named["key_types"]["content"] = [method]

    packed = rewritten(skops.io.dumps([{"x": 1}, np.array([b"a"])]), change)
    with pytest.raises(fareg.FaregError, match=r"not trusted: numpy\.ndarray\.tofile"):
        _skops.load(packed)


def test_a_class_of_the_same_name_from_elsewhere_is_not_taken_for_ours(tmp_path):
    def change(schema):
        schema["__module__"] = "elsewhere"

    packed = rewritten(skops.io.dumps(LogisticRegression().fit(ROWS, TWO)), change)
    (tmp_path / "m.skops").write_bytes(packed)
    with pytest.raises(fareg.FaregError, match=r"not trusted: .*elsewhere\.LogisticRegression"):
        read_estimator(tmp_path / "m.skops")


def test_nothing_that_a_file_names_is_imported(honest, tmp_path, monkeypatch):
    (tmp_path / "planted_by_a_file.py").write_text("class Own: pass\n")
    monkeypatch.syspath_prepend(tmp_path)

    def change(schema):
        schema["content"][0] |= {"__module__": "planted_by_a_file", "__class__": "Own"}

    forged(honest, foreign, rewritten(skops.io.dumps([LogisticRegression()]), change))
    assert describe(honest)["untrusted"] == ["planted_by_a_file.Own"]
    with pytest.raises(fareg.FaregError, match=r"not trusted: planted_by_a_file\.Own"):
        fareg.load(honest)
    assert "planted_by_a_file" not in sys.modules
    with pytest.raises(fareg.FaregError):  # it is named, and it is no classifier
        fareg.load(honest, trusted=["planted_by_a_file.Own"])
    (tmp_path / "planted_by_a_file.py").unlink()
    sys.modules.pop("planted_by_a_file")
    with pytest.raises(fareg.FaregError, match="a trusted type is not installed here"):
        fareg.load(honest, trusted=["planted_by_a_file.Own"])


def packed_bomb(name, content):
    """Return a zip file with one entry that is much larger than its file."""
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return inner.getvalue()


@pytest.mark.parametrize(("name", "read"), [("manifest", fareg.load), ("schema", read_estimator)])
def test_json_that_is_much_larger_than_its_file_is_not_parsed(name, read, tmp_path):
    much = b"[" + b"{}," * 2_000_000 + b"0]"
    (tmp_path / "bomb").write_bytes(packed_bomb(f"{name}.json", much))
    with pytest.raises(fareg.FaregError, match="more bytes than"):
        read(tmp_path / "bomb")


def test_a_bomb_in_a_file_of_skops_is_refused_before_it_unfolds(honest, tmp_path):
    packed = packed_bomb("schema.json", b" " * 200_000_000)
    forged(honest, foreign, packed)
    (tmp_path / "m.skops").write_bytes(packed)
    for read, path in (
        (fareg.load, honest),
        (describe, honest),
        (read_estimator, tmp_path / "m.skops"),
    ):
        with pytest.raises(fareg.FaregError, match="far more bytes"):
            read(path)


def test_a_file_that_is_read_without_trust_needs_neither_skops_nor_matplotlib(honest):
    code = (
        "import sys, fareg, numpy\n"
        f"fareg.load({str(honest)!r}).predict_set(numpy.zeros((2, 3)))\n"
        "print('skops' in sys.modules, 'matplotlib' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_random_edits_of_every_estimator_kill_nobody():
    here = Path(__file__).parent
    command = [sys.executable, str(here / "mutations.py"), "7", "12"]
    paths = os.pathsep.join([str(here.parent), *sys.path])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    last = done.stdout.splitlines()[-1:]
    assert done.returncode == 0, f"{last} ended by {done.returncode}: {done.stderr[-2000:]}"
    assert last[0].startswith("answered")


# --- trust ------------------------------------------------------------------------------------

OWN = """
from sklearn.linear_model import LogisticRegression

class Own(LogisticRegression):
    pass
"""


def test_the_shell_trusts_types_that_are_named(tmp_path, monkeypatch):
    (tmp_path / "own_model.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    from own_model import Own

    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(400, 2)), columns=["a", "b"])
    y = (X["a"] + rng.normal(size=400) > 0).astype(int)
    clf = fareg.SplitConformalClassifier(Own(), random_state=0).fit(X, y)
    with pytest.warns(fareg.FaregWarning, match=r"runs code of these types.*own_model\.Own"):
        fareg.save(clf, tmp_path / "m.fareg")
    (tmp_path / "parts").mkdir()
    X.assign(y=y).to_parquet(tmp_path / "parts" / "rows.parquet")

    def run(command, *arguments):
        done = CliRunner().invoke(app, [command, *map(str, arguments)])
        return done.exit_code, " ".join(done.output.split())

    model, table = tmp_path / "m.fareg", tmp_path / "parts" / "rows.parquet"
    assert "needs --trust own_model.Own" in run("info", model)[1]
    for command in (
        ("predict", model, table, "--out", tmp_path / "sets.csv"),
        ("predict", model, tmp_path / "parts", "--out", tmp_path / "sets", "--engine", "local:1"),
        ("audit", table, "--target", "y", "--model", model),
    ):
        code, words = run(*command)
        assert code == 2
        assert words.startswith("Error: the estimator holds types that are not trusted")
        assert words.endswith("add --trust own_model.Own")
        code, words = run(*command, "--trust", "own_model.Own")
        assert code == 0, words


def test_a_trusted_step_stands_in_a_pipeline_that_is_checked(tmp_path):
    model = make_pipeline(FunctionTransformer(np.cbrt), LogisticRegression()).fit(ROWS, TWO)
    path = saved(conformal(model), tmp_path / "m.fareg")
    needed = describe(path)["untrusted"]
    assert needed == [
        "numpy.cbrt",
        "sklearn.preprocessing._function_transformer.FunctionTransformer",
    ]
    back = fareg.load(path, trusted=needed)
    np.testing.assert_array_equal(back.predict_proba(ROWS), model.predict_proba(ROWS))


def test_a_search_is_named_and_its_best_model_is_not(tmp_path):
    from sklearn.model_selection import GridSearchCV

    search = GridSearchCV(LogisticRegression(), {"C": [1, 2]}, cv=2).fit(ROWS, TWO)
    assert describe(saved(conformal(search), tmp_path / "m.fareg"))["untrusted"]
    assert not describe(saved(conformal(search.best_estimator_), tmp_path / "m.fareg"))["untrusted"]
