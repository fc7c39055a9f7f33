"""The house stands: floors, public names, light imports, a README that runs."""

import ast
import importlib
import inspect
import re
import subprocess
from pathlib import Path

import pytest

import fareg

SOURCE = Path(fareg.__file__).parent
ROOT = Path(__file__).parents[1]
TABLE = re.findall(r"^\| (\d+) \| (.+) \|$", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
FLOORS = {room: int(floor) for floor, rooms in TABLE for room in re.findall(r"`(\w+)`", rooms)}
MODULES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")
PUBLIC = [
    "fareg",
    "fareg.classifiers",
    "fareg.datasets",
    "fareg.metrics",
    "fareg.persistence",
    "fareg.pvalues",
    "fareg.scores",
]


def room_of(path):
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_modules(tree):
    """Yield (node, name) of everything a module imports; relative names start with a dot."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            yield from ((node, f"{base}.{alias.name}") for alias in node.names)


def is_missing(module):
    return importlib.util.find_spec(module) is None


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_room_imports_itself_and_lower_floors(path):
    room = room_of(path)
    assert room in FLOORS, f"{room} has no floor yet: add it to the table in CONTRIBUTING.md"
    for node, name in imported_modules(ast.parse(path.read_text(encoding="utf-8"))):
        where = f"{path.name}:{node.lineno} imports {name}"
        assert not name.startswith("."), f"{where}: use the absolute name"
        package, _, rest = name.partition(".")
        if package != "fareg":
            continue
        other = rest.split(".")[0]
        assert other in FLOORS, f"{where}: import from the room that defines it"
        assert other == room or FLOORS[other] < FLOORS[room], f"{where}: not a lower floor"


def names_imported_by_text(tree):
    """Yield (node, name) of every call ``import_module("name")``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from ((node, a.value) for a in node.args if isinstance(a, ast.Constant))


def hides_something(name):
    """Tell whether a dotted name of this package goes through something private in a room."""
    return any(part.startswith("_") for part in name.split(".")[2:])


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_room_uses_only_public_names_of_other_rooms(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node, name in (*imported_modules(tree), *names_imported_by_text(tree)):
        if name.split(".")[0] == "fareg" and name.split(".")[1] != room_of(path):
            where = f"{path.name}:{node.lineno} imports {name}"
            assert not hides_something(name), f"{where}: let its room offer it"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_only_the_command_line_knows_its_flags(path):
    if room_of(path) == "cli":
        pytest.skip("the command line itself")
    flags = re.compile(r"(?<![-\w])--[a-z]")
    tree = ast.parse(path.read_text(encoding="utf-8"))
    texts = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant)]
    assert not [text for text in texts if isinstance(text, str) and flags.search(text)]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_module_needs_torch(path):
    names = [name for _, name in imported_modules(ast.parse(path.read_text(encoding="utf-8")))]
    assert "torch" not in {name.split(".")[0] for name in names}


@pytest.mark.parametrize("name", PUBLIC)
def test_public_list_is_complete(name):
    if is_missing(name):
        pytest.skip(f"{name} is not built yet")
    module = importlib.import_module(name)
    assert len(set(module.__all__)) == len(module.__all__)
    assert all(hasattr(module, public) for public in module.__all__)
    if hasattr(module, "__path__"):  # what a package's __init__ imports is what it offers
        offered = {
            public
            for public in dir(module)
            if not public.startswith("_")
            and not inspect.ismodule(value := getattr(module, public))
            and getattr(value, "__module__", None) != "__future__"
        }
        assert offered <= set(module.__all__)
    else:
        defined = {
            public
            for public, value in vars(module).items()
            if not public.startswith("_")
            and inspect.isroutine(value) | inspect.isclass(value)
            and value.__module__ == name
        }
        assert defined <= set(module.__all__)


def documented():
    for name in PUBLIC:
        if not is_missing(name):
            module = importlib.import_module(name)
            yield from ((f"{name}.{public}", getattr(module, public)) for public in module.__all__)


@pytest.mark.parametrize(
    ("name", "thing"), [pytest.param(*pair, id=pair[0]) for pair in documented()]
)
def test_public_things_are_documented_with_an_example(name, thing):
    if not (inspect.isclass(thing) or inspect.isroutine(thing)):
        pytest.skip("a value, described where it is defined")
    assert inspect.getdoc(thing), f"{name} has no docstring"
    if not (inspect.isclass(thing) and issubclass(thing, Exception)):
        assert re.search(r"^Examples\n-{8}$", inspect.getdoc(thing), re.M), f"{name}: no Examples"
        assert ">>>" in inspect.getdoc(thing)


def test_no_public_name_hides_a_room():
    """A function named like a package keeps ``import fareg.package._module`` from working."""
    assert not {name for name in fareg.__all__ if name in FLOORS}


def test_no_file_names_a_path_of_one_machine():
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    machine_path = re.compile(rb"(?<![\w.:/-])/(home|tmp|work|root|Users)/")
    found = []
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        content = path.read_bytes() if path.is_file() else b""
        if b"\0" not in content and machine_path.search(content):
            found.append(name)
    assert found == []


@pytest.mark.slow
def test_readme_block_runs(tmp_path, monkeypatch):
    readme = ROOT / "README.md"
    if not readme.exists():
        pytest.skip("no README.md yet")
    blocks = re.findall(r"^```python\n(.*?)^```", readme.read_text(encoding="utf-8"), re.M | re.S)
    assert len(blocks) == 1
    monkeypatch.chdir(tmp_path)
    exec(compile(blocks[0], "README.md", "exec"), {"__name__": "readme"})
