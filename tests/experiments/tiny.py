"""A tiny run of real cells: for tests, and for processes that are killed in the middle of it."""

from fareg.experiments._cells import MethodCell
from fareg.experiments._config import BaseConfig, DataConfig, Method, MetricConfig, Problem
from fareg.experiments._methods import LEVELS, MARGINAL
from fareg.experiments._runner import run_cells
from fareg.experiments._store import Store

BASE = BaseConfig(hidden=(8,), learning_rate=0.01, max_epochs=5, patience=5)
METRICS = MetricConfig(n_directions=20, n_permutations=3)


def tiny_cells(n_problems=4):
    """Return cells that take a fraction of a second each; one depends on another."""
    afcp = Method("AFCP2", "afcp", (("n_select", 2),))
    methods = [
        Method("matched", "matched", (("like", afcp),)),
        MARGINAL,
        afcp,
        Method("Oracle", "oracle", (("construction", "partition"),)),
    ]
    problems = [Problem(DataConfig("xnor"), 200, s, BASE, 100) for s in range(n_problems)]
    cells = [MethodCell(problem, method, METRICS) for problem in problems for method in methods]
    return [*cells, MethodCell(problems[0], LEVELS, METRICS)]


def tiny_problem(kind="xnor", n=400, seed=0):
    return Problem(DataConfig(kind), n, seed, BASE, 200)


def run(folder, jobs):
    run_cells(tiny_cells(), Store.open(folder), jobs=jobs)
