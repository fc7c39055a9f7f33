"""The paper's data as problems: half of N rows train, half calibrate, others test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from fareg._validation import FaregError
from fareg.datasets import (
    Dataset,
    inject_label_noise,
    load_acs_income,
    make_metric_benchmark,
    make_nursery_experiment,
    make_synthetic,
)
from fareg.experiments._bench import DRAW, Bench
from fareg.experiments._measures import MetricSettings, paper_measures
from fareg.experiments._settings import UNHASHED, BaseModel, generator
from fareg.experiments._store import Store

PAPER_NETWORK = BaseModel()
# How the authors number the synthetic features: sensitive groups 0 and 1, others further up.
AUTHORS_CODES = {
    "Color": ("Red", "Blue"),
    "Gender": ("Female", "Male"),
    "Age Group": ("Child", "Youth", "Middle", "Elder"),
    "Region": ("Asia", "Europe", "Africa", "America", "Oceania"),
}
FIRST_CODE = {"Age Group": 6, "Region": 1}
CUT_ROWS = 500  # rows of the level with noise that are left in the authors' Nursery file


@dataclass(frozen=True)
class PaperProblem:
    """One data set drawn with one seed; data from files are named by a hash of their content.

    The path does not enter the hash: files may move. ``codes`` says how categories are numbered
    for a network: by the alphabet, in their natural order ("ordered"), or as the authors do.
    """

    kind: str  # a key of DATA
    n: int
    seed: int
    base: BaseModel = PAPER_NETWORK
    n_test: int = 500
    codes: str = "alphabet"
    fingerprint: str = ""
    path: str = field(default="", metadata=UNHASHED)
    states: tuple[str, ...] = field(default=(), metadata=UNHASHED)

    @property
    def data(self) -> DataKind:
        """How the rows are drawn."""
        return DATA[self.kind]

    def rng(self, purpose: int) -> np.random.Generator:
        """Return the generator of one purpose; no two purposes or problems share numbers."""
        return generator(self.kind, self.seed, self.n, purpose)

    def prepare(self, store: Store) -> Bench:
        """Draw the rows."""
        drawn = self.data.draw(self, self.rng(DRAW))
        X = drawn.X if self.codes == "alphabet" else numbered(drawn.X, self.codes)
        rows = np.arange(len(X))
        half = self.n // 2
        return Bench(
            problem=self,
            X=X,
            y=drawn.y,
            n_classes=self.data.n_classes,
            sensitive=list(drawn.sensitive),
            train=rows[:half],
            calibration=rows[half : self.n],
            test=rows[self.n :],
            group=drawn.group,
            store=store,
        )

    def measure(self, sets: Any, bench: Bench, cell: Any) -> dict[str, float]:
        """Return the paper's measures of the sets of the test rows."""
        return paper_measures(sets, bench, cell.metrics or MetricSettings())


@dataclass(frozen=True)
class DataKind:
    """How to draw rows, how many classes there are, and the two features that make the group."""

    draw: Callable[[PaperProblem, np.random.Generator], Dataset]
    n_classes: int
    target_features: tuple[str, str]
    published: str = "synthetic"  # the published setting whose hyperparameters FaReG (paper) takes


def numbered(X: Any, codes: str) -> Any:
    """Return the synthetic features with numbers for categories, in their natural order.

    The authors count Age Group from 6 and Region from 1.
    """
    places = {name: {value: k for k, value in enumerate(v)} for name, v in AUTHORS_CODES.items()}
    first = FIRST_CODE if codes == "authors" else {}
    columns = {name: X[name].map(place) + first.get(name, 0) for name, place in places.items()}
    return X.assign(**{name: column.astype(float) for name, column in columns.items()})


def _synthetic(bias: str) -> Callable[[PaperProblem, np.random.Generator], Dataset]:
    return lambda own, rng: make_synthetic(own.n + own.n_test, bias=bias, random_state=rng)


def _nursery(own: PaperProblem, rng: np.random.Generator) -> Dataset:
    return _sample(make_nursery_experiment(random_state=rng), own, rng)


def _cut_nursery(own: PaperProblem, rng: np.random.Generator) -> Dataset:
    """Draw Nursery with few rows of one noisy level, as the code published with AFCP does."""
    data = make_nursery_experiment(random_state=rng)
    level = np.flatnonzero(np.asarray(data.group) & (data.X["parents"] == "pretentious"))
    keep = np.ones(len(data), dtype=bool)
    keep[rng.permutation(level)[CUT_ROWS:]] = False
    return _sample(data.take(keep), own, rng)


def _acs(own: PaperProblem, rng: np.random.Generator) -> Dataset:
    drawn = _sample(_people(own.path, own.states), own, rng)
    y = inject_label_noise(drawn.y, np.asarray(drawn.group), n_classes=4, random_state=rng)
    return replace(drawn, y=y)


@lru_cache(maxsize=1)
def _people(path: str, states: tuple[str, ...]) -> Dataset:
    """Return everyone in the files, with income brackets of all of them and without noise."""
    folder = Path(path)
    return load_acs_income(folder, states=states, n_samples=None, label_noise=False, random_state=0)


def _sample(data: Dataset, own: PaperProblem, rng: np.random.Generator) -> Dataset:
    n = own.n + own.n_test
    if n > len(data):
        raise FaregError(f"{data.name} has {len(data)} rows, {n} are needed; use smaller sizes")
    return data.take(rng.permutation(len(data))[:n])


DATA: dict[str, DataKind] = {
    "xnor": DataKind(_synthetic("xnor"), 6, ("Color", "Gender")),
    "eight": DataKind(_synthetic("eight"), 6, ("Gender", "Age Group")),
    "none": DataKind(_synthetic("none"), 6, ("Color", "Gender")),
    "metric": DataKind(
        lambda own, rng: make_metric_benchmark(own.n + own.n_test, rng), 6, ("x0", "x1")
    ),
    "nursery": DataKind(_nursery, 4, ("parents", "finance"), "nursery"),
    "cut-nursery": DataKind(_cut_nursery, 4, ("parents", "finance"), "nursery"),
    "acs": DataKind(_acs, 4, ("AGE", "SEX"), "nursery"),
}
