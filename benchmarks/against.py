"""What an older tree cost next to this one: seconds and memory of the same work, in turn.

    git worktree add older v0.2 && python benchmarks/against.py older

Every job runs in a process of its own, with the library threads that a user has, alone and beside
two processes that keep two cores busy; the shortest of some runs counts. The rows go to
``against.csv``, with the sizes of both trees.
"""

from __future__ import annotations

import ast
import csv
import io
import json
import os
import subprocess
import sys
import tokenize
from pathlib import Path
from typing import Annotated

import typer
from measure import neighbours

HERE = Path(__file__).parents[1]
RESULTS = Path(__file__).with_name("against.csv")
START = """
import json, resource, time
import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from fareg import FaReGClassifier, SplitConformalClassifier, audit, load, save
from fareg.datasets import make_synthetic

def table(n, seed=0):
    data = make_synthetic(n, random_state=seed)
    return data.X, data.y, list(data.sensitive)

def model():
    return make_pipeline(OneHotEncoder(handle_unknown="ignore"), LogisticRegression(max_iter=200))

def frozen(n):
    X, y, sensitive = table(n + 2000)
    base = FrozenEstimator(model().fit(X[:2000], y[:2000]))
    return FaReGClassifier(base, sensitive_features=sensitive, random_state=0), X[2000:], y[2000:]
"""
END = """
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"seconds": seconds, "MiB": peak}))
"""
JOBS = {  # what a user does: preparation, then the work that is timed
    "fit, 20,000 rows": (
        "X, y, s = table(20_000); clf = FaReGClassifier(sensitive_features=s, random_state=0)",
        "clf.fit(X, y)",
    ),
    "conformalize a trained model, 40,000 rows": (
        "clf, X, y = frozen(40_000)",
        "clf.conformalize(X, y)",
    ),
    "predict_set, 200,000 rows": (
        "clf, X, y = frozen(4000); clf.conformalize(X, y); X = table(200_000, 1)[0]",
        "clf.predict_set(X)",
    ),
    "predict_set, one row, 50 times": (
        "clf, X, y = frozen(4000); clf.conformalize(X, y); clf.predict_set(X[:1])",
        "for i in range(50): clf.predict_set(X[i : i + 1])",
    ),
    "audit, 5,000 rows": (
        "clf, X, y = frozen(9000); clf = SplitConformalClassifier(clf.estimator, random_state=0)\n"
        "sets = clf.conformalize(X[:4000], y[:4000]).predict_set(X[4000:])",
        "audit(X[4000:], y[4000:], sets, classes=clf.classes_)",
    ),
    "save and load": (
        "import os, tempfile; clf, X, y = frozen(4000); clf.conformalize(X, y)\n"
        "path = os.path.join(tempfile.mkdtemp(), 'model.fareg')",
        "save(clf, path); load(path)",
    ),
}
COMMANDS = {"fareg --version": "--version", "fareg --help": "--help"}


def run(tree: Path, code: str) -> dict[str, float]:
    """Run code with the package of a tree; return what its last line says."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def job(before: str, work: str) -> str:
    """Return a program that times one job."""
    lines = [START, before, "begin = time.perf_counter()", work]
    return "\n".join([*lines, "seconds = time.perf_counter() - begin", END])


def command(arguments: str) -> str:
    """Return a program that times a command from a cold start."""
    return (
        "import json, resource, subprocess, sys, time\nbegin = time.perf_counter()\n"
        f"subprocess.run([sys.executable, '-m', 'fareg', {arguments!r}], check=True,"
        " stdout=subprocess.DEVNULL)\nseconds = time.perf_counter() - begin\n"
        "peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024\n"
        "print(json.dumps({'seconds': seconds, 'MiB': peak}))"
    )


def code_lines(path: Path) -> int:
    """Count the lines that are neither blank, comment nor docstring."""
    text = path.read_text(encoding="utf-8")
    layout = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in layout | {tokenize.ENDMARKER}:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        has_text = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        if has_text and ast.get_docstring(node) is not None:
            text_node = node.body[0]
            lines -= set(range(text_node.lineno, (text_node.end_lineno or 0) + 1))
    return len(lines)


def sizes(tree: Path) -> dict[str, int]:
    """Count a tree: lines and files of Python in the package, lines of tests, words of docs."""
    package = sorted((tree / "src").rglob("*.py"))
    pages = [*(tree / "docs").glob("*.md"), tree / "README.md"]
    tests = (tree / "tests").rglob("*.py")
    return {
        "lines of the package": sum(len(p.read_text("utf-8").splitlines()) for p in package),
        "of these, code": sum(map(code_lines, package)),
        "files of the package": len(package),
        "lines of tests": sum(len(p.read_text("utf-8").splitlines()) for p in tests),
        "words of documentation": sum(len(p.read_text("utf-8").split()) for p in pages),
    }


def main(
    older: Annotated[Path, typer.Argument(help="Folder of the older tree.")], repeats: int = 3
) -> None:
    """Measure both trees in turn and store what was found."""
    trees, rows = (older.resolve(), HERE), list[dict]()
    new_sizes = sizes(HERE)
    for what, count in sizes(trees[0]).items():
        rows.append({"what": what, "busy": 0, "unit": "", "old": count, "new": new_sizes[what]})
    programs = {what: job(*parts) for what, parts in JOBS.items()}
    programs |= {what: command(arguments) for what, arguments in COMMANDS.items()}
    for busy in (0, 2):
        for what, program in programs.items():
            with neighbours(busy):
                found = [[run(tree, program) for tree in trees] for _ in range(repeats)]
            for unit in ("seconds", "MiB") if not busy else ("seconds",):
                old, new = (round(min(turn[i][unit] for turn in found), 4) for i in (0, 1))
                rows.append({"what": what, "busy": busy, "unit": unit, "old": old, "new": new})
            print(rows[-1], flush=True)
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["what", "busy", "unit", "old", "new"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    typer.run(main)
