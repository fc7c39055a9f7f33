"""Starting costs little: what is not needed is not imported, and every name is still there."""

import ast
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import fareg

HEAVY = ("matplotlib", "narwhals", "numpy", "pandas", "pyarrow", "scipy", "sklearn", "torch")
LAZY = ("fareg", "fareg.workflow")
COMMAND = """
from fareg.cli import app
try:
    app({arguments!r}, prog_name="fareg")
except SystemExit as stop:
    assert stop.code == 0
"""


def heavy_imports(code):
    """Return the heavy libraries that a fresh Python has imported after ``code``."""
    code += f"\nimport json, sys\nprint(json.dumps([m for m in {HEAVY} if m in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    "code",
    [
        "import fareg; dir(fareg)",
        "import fareg; fareg.__version__",
        "import fareg.workflow",
        COMMAND.format(arguments=["--version"]),
        COMMAND.format(arguments=["--help"]),
        COMMAND.format(arguments=["fit", "--help"]),
    ],
    ids=["import", "version", "workflow", "--version", "--help", "fit --help"],
)
def test_nothing_heavy_is_imported_before_it_is_needed(code):
    assert heavy_imports(code) == []


def test_all_public_names_together_need_neither_torch_nor_matplotlib():
    found = heavy_imports("from fareg import *")
    assert "sklearn" in found
    assert not {"torch", "matplotlib"} & set(found)


def test_imports_of_a_command_are_no_garbage_and_later_garbage_is_collected():
    code = (
        "import gc\nfrom fareg.cli._running import answering\n"
        "with answering(): pass\n"
        "print(gc.get_freeze_count() > 50_000, gc.isenabled())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "True True"


def test_prediction_imports_nothing_that_only_fit_and_audit_use():
    code = "import sys, fareg.workflow; fareg.workflow.predict_file; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    rooms = {".".join(name.split(".")[:2]) for name in done.stdout.split() if "fareg" in name}
    assert "fareg.persistence" in rooms
    assert not {"fareg.auditing", "fareg.report", "fareg.datasets", "fareg.experiments"} & rooms


@pytest.mark.parametrize("name", LAZY)
def test_python_and_type_checkers_find_the_same_names_in_the_same_modules(name):
    package = importlib.import_module(name)
    assert set(package.__all__) <= set(dir(package))
    tree = ast.parse(Path(package.__file__).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.name: node.module
        for node in ast.walk(block)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert set(seen) - {"__version__"} == set(package.__all__)
    for public, home in seen.items():
        assert getattr(package, public) is getattr(importlib.import_module(home), public)


def test_rooms_are_there_without_an_import_of_their_own():
    code = "import fareg; print(fareg.metrics.coverage_score.__name__, callable(fareg.audit))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["coverage_score", "True"]


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'fareg' has no attribute 'no_such_name'"):
        _ = fareg.no_such_name
    assert not hasattr(fareg.classifiers, "no_such_name")
