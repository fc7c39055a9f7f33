"""What the documentation shows is true: blocks of code run, entries name real defaults."""

import ast
import importlib
import importlib.util
import inspect
import re
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from mapie.classification import SplitConformalClassifier as SplitConformalClassifierOfMapie
from sklearn.base import BaseEstimator
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from fareg import SplitConformalClassifier
from fareg._encoding import one_hot_encoder

ROOT = Path(__file__).parents[1]
PAGES = {
    path.name: re.findall(r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"), re.M | re.S)
    for path in sorted((ROOT / "docs").glob("*.md"))
}
PUBLIC = (
    "fareg",
    "fareg.datasets",
    "fareg.groups",
    "fareg.metrics",
    "fareg.paper",
    "fareg.persistence",
    "fareg.pvalues",
    "fareg.scores",
    "fareg.workflow",
)
ENTRY = re.compile(r"^(?P<names>\w+(?:, \w+)*)(?: : (?P<kind>.*))?$", re.MULTILINE)
DEFAULT = re.compile(r"default[= ](?P<value>.+)$")


@pytest.mark.parametrize("page", [page for page, blocks in PAGES.items() if blocks])
def test_blocks_of_a_page_run_in_order(page, tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(
        {
            "sex": rng.choice(["f", "m"], 900),
            "age": rng.integers(18, 90, 900),
            "dose": rng.normal(size=900),
        }
    )
    labels = np.array(["a", "b", "c"])[np.digitize(rows["dose"] + rng.normal(size=900), [-1, 1])]
    model = make_pipeline(one_hot_encoder(), LogisticRegression()).fit(rows[:300], labels[:300])
    given = {
        "X": rows[600:],
        "y": labels[600:],
        "model": model,
        "X_cal": rows[300:600],
        "y_cal": labels[300:600],
        "X_new": rows[600:],
        "sets": model.predict_proba(rows[600:]) > 0.2,
        "classes": model.classes_,
    }
    monkeypatch.chdir(tmp_path)
    for number, block in enumerate(PAGES[page], start=1):
        exec(compile(block, f"{page}, block {number}", "exec"), given)


def test_sets_equal_those_of_mapie():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"dose": rng.normal(size=900)})
    y = np.digitize(X["dose"] + rng.normal(size=900), [-1, 1])
    model = LogisticRegression().fit(X[:300], y[:300])
    mapie = SplitConformalClassifierOfMapie(
        model, confidence_level=0.9, conformity_score="lac", prefit=True
    )
    theirs = mapie.conformalize(X[300:600], y[300:600]).predict_set(X[600:])[1]
    ours = SplitConformalClassifier(FrozenEstimator(model), conformity_score="lac", random_state=0)
    sets = ours.conformalize(X[300:600], y[300:600]).predict_set(X[600:])
    assert (sets == theirs[:, :, 0]).all()


def public_things():
    """Yield everything public that takes parameters, but for records, which say them by name."""
    for name in PUBLIC:
        module = importlib.import_module(name)
        for public in module.__all__:
            thing = getattr(module, public)
            is_estimator = inspect.isclass(thing) and issubclass(thing, BaseEstimator)
            if is_estimator or "Parameters\n---" in (inspect.getdoc(thing) or ""):
                yield pytest.param(thing, id=f"{name}.{public}")


def entries(thing):
    """Return names and kind of each entry among the parameters in a docstring."""
    text = inspect.getdoc(thing) or ""
    found = re.search(r"^Parameters\n-+\n(.*?)(?=^\w[\w ]*\n-+$|\Z)", text, re.M | re.S)
    lines = ENTRY.finditer(found.group(1) if found else "")
    return [(line["names"].split(", "), line["kind"]) for line in lines]


@pytest.mark.parametrize("thing", list(public_things()))
def test_every_parameter_has_an_entry_with_its_real_default(thing):
    parameters = inspect.signature(thing).parameters
    told = entries(thing)
    known = [name for names, _ in told for name in names]
    assert sorted(set(known)) == sorted(known), "one entry per parameter"
    missing = [name for name in parameters if name not in known]
    assert not missing, f"no entry for {missing}"
    for names, kind in told:
        stated = DEFAULT.search(kind or "")
        if stated is None:
            continue
        values = stated["value"].split(" and ") if len(names) > 1 else [stated["value"]]
        assert len(values) == len(names), f"{names}: a default for each"
        for name, value in zip(names, values, strict=True):
            assert ast.literal_eval(value) == parameters[name].default, name


def test_examples_in_docstrings_are_collected():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    options = settings["tool"]["pytest"]["ini_options"]
    assert "src/fareg" in options["testpaths"]
    assert "--doctest-modules" in options["addopts"]
    sources = (ROOT / "src" / "fareg").rglob("*.py")
    texts = [
        ast.get_docstring(node) or ""
        for path in sources
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    ]
    assert sum(">>> " in text for text in texts) >= 65


def script(name):
    """Import a script of the documentation."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def api_entries():
    return script("_api_entries")


@pytest.mark.parametrize("thing", list(public_things()))
def test_the_api_page_reads_one_name_per_entry_and_no_roles(thing):
    text = inspect.getdoc(thing) or ""
    prepared = api_entries().prepared(text)
    assert not re.search(r":\w+:`", prepared)
    body = re.search(r"^Parameters\n-+\n(.*?)(?=^\w[\w ]*\n-+$|\Z)", prepared, re.M | re.S)
    names = [line["names"] for line in ENTRY.finditer(body.group(1))]
    assert names == [name for shared, _ in entries(thing) for name in shared]


def test_shared_entries_are_split_and_roles_become_code():
    prepared = api_entries().prepared
    text = (
        "Do it.\n\nParameters\n----------\nalpha, beta : float, default=1 and 2\n    See "
        ":func:`~a.b`.\n\n    More.\nn : int\n\nAttributes\n----------\nlow, high : float\n"
    )
    assert prepared(text) == (
        "Do it.\n\nParameters\n----------\nalpha : float\n    See `a.b`.\n\n    More.\n"
        "beta : float\n    See `a.b`.\n\n    More.\nn : int\n\nAttributes\n----------\n"
        "low, high : float\n"
    )


def test_pages_and_tables_are_those_of_the_stored_rows(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    build = script("_build")
    stale = [
        name
        for name, text in build.texts().items()
        if (ROOT / "docs" / name).read_text(encoding="utf-8") != text
    ]
    assert not stale, "run make pages"
    assert all((ROOT / "docs" / name).is_file() for name in build.PICTURES)
