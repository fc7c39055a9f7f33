"""A tiny run of real cells: for tests, and for processes that are killed in the middle."""

from fareg.experiments._bench import BaseModel, Store
from fareg.experiments._measures import MetricSettings
from fareg.experiments._methods import LEVELS, MARGINAL, ORACLE, Method
from fareg.experiments._problems import PaperProblem
from fareg.experiments._runs import MethodCell, run_cells

BASE = BaseModel(hidden=(8,), learning_rate=0.01, max_epochs=5, patience=5)
METRICS = MetricSettings(n_directions=20, n_permutations=3)
AFCP2 = Method("AFCP2", "afcp", (("n_select", 2),))


def tiny_cells(n_problems=4):
    """Return cells that take a fraction of a second each; one depends on another."""
    methods = [Method("matched", "matched", (("like", AFCP2),)), MARGINAL, AFCP2, ORACLE]
    problems = [PaperProblem("xnor", 200, s, BASE, 100) for s in range(n_problems)]
    found = [MethodCell(own, method, metrics=METRICS) for own in problems for method in methods]
    return [*found, MethodCell(problems[0], LEVELS, metrics=METRICS)]


def tiny_problem(kind="xnor", n=400, seed=0):
    return PaperProblem(kind, n, seed, BASE, 200)


def run(folder, jobs):
    run_cells(tiny_cells(), Store.open(folder), jobs=jobs)
