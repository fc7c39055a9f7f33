"""The data of experiments: the paper's, and published tables described in a TOML file."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fareg._columns import canonical, check_columns
from fareg._levels import LevelCoding
from fareg._rows import hash_key, joint_codes
from fareg._validation import BoolArray, FaregError, IntArray, InvalidInputError
from fareg.classifiers import split_rows
from fareg.datasets import (
    Dataset,
    inject_label_noise,
    load_acs_income,
    make_metric_benchmark,
    make_nursery_experiment,
    make_synthetic,
)
from fareg.experiments._bench import (
    DRAW,
    NOISE,
    UNHASHED,
    BaseModel,
    Bench,
    Store,
    fingerprint,
    generator,
)
from fareg.experiments._measures import covered_rows, fairness, paper_measures, table_measures
from fareg.experiments._methods import size_matched_sets
from fareg.workflow import read_table

NETWORK = BaseModel()
# The synthetic features in the order of the authors' numbers.
AUTHORS_CODES = {
    "Color": ("Red", "Blue"),
    "Gender": ("Female", "Male"),
    "Age Group": ("Child", "Youth", "Middle", "Elder"),
    "Region": ("Asia", "Europe", "Africa", "America", "Oceania"),
}
FIRST_CODE = {"Age Group": 6, "Region": 1}
CUT_ROWS = 500  # rows with noise that the authors' Nursery file keeps of one category
FIT_SHARE = 0.6  # largest share of a small table for training and calibration
GROUP_SHARE = (0.15, 0.3)  # share of the rows in the group with noise
RANDOM_LABELS = 0.7  # share of that group whose label is drawn from everyone's labels
LABELS = ("natural", "noise")
MODELS = ("hgb", "logistic", "network")


# --- the paper ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class PaperProblem:
    """One data set drawn with one seed: half of ``n`` rows train, half calibrate, others test.

    Data from files enter the hash of the problem by their content, not by their path. ``codes``
    says how categories are numbered for a network: by the alphabet, in their natural order
    ("ordered"), or as the authors do.
    """

    kind: str  # a key of DATA
    n: int
    seed: int
    base: BaseModel = NETWORK
    n_test: int = 500
    codes: str = "alphabet"
    fingerprint: str = ""
    path: str = field(default="", metadata=UNHASHED)
    states: tuple[str, ...] = field(default=(), metadata=UNHASHED)

    failures_count = False

    @property
    def data(self) -> DataKind:
        return DATA[self.kind]

    def rng(self, purpose: int) -> np.random.Generator:
        """Return the generator of one purpose; no two purposes or problems share numbers."""
        return generator(self.kind, self.seed, self.n, purpose)

    def prepare(self, store: Store) -> Bench:
        drawn = self.data.draw(self, self.rng(DRAW))
        rows, half = np.arange(len(drawn)), self.n // 2
        return Bench(
            problem=self,
            X=drawn.X if self.codes == "alphabet" else numbered(drawn.X, self.codes),
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
        return paper_measures(sets, bench, cell.metrics)


def numbered(X: Any, codes: str) -> Any:
    """Return the synthetic features with numbers for categories, in their natural order.

    The authors count Age Group from 6 and Region from 1.
    """
    first = FIRST_CODE if codes == "authors" else {}
    columns = {
        name: X[name].map({value: float(k) for k, value in enumerate(values, first.get(name, 0))})
        for name, values in AUTHORS_CODES.items()
    }
    return X.assign(**columns)


@dataclass(frozen=True)
class DataKind:
    """How to draw rows, their number of classes, and the two features that make the group."""

    draw: Callable[[PaperProblem, np.random.Generator], Dataset]
    n_classes: int
    target_features: tuple[str, str]
    published: str = "synthetic"  # the published setting whose hyperparameters FaReG (paper) takes


def _synthetic(bias: str) -> Callable[[PaperProblem, np.random.Generator], Dataset]:
    return lambda p, rng: make_synthetic(p.n + p.n_test, bias=bias, random_state=rng)


def _nursery(problem: PaperProblem, rng: np.random.Generator) -> Dataset:
    return _sample(make_nursery_experiment(random_state=rng), problem, rng)


def _cut_nursery(problem: PaperProblem, rng: np.random.Generator) -> Dataset:
    """Draw Nursery with few noisy rows of one category, as the code published with AFCP does."""
    data = make_nursery_experiment(random_state=rng)
    noisy = np.flatnonzero(np.asarray(data.group) & (data.X["parents"] == "pretentious"))
    keep = np.ones(len(data), dtype=bool)
    keep[rng.permutation(noisy)[CUT_ROWS:]] = False
    return _sample(data.take(keep), problem, rng)


def _acs_income(problem: PaperProblem, rng: np.random.Generator) -> Dataset:
    drawn = _sample(_acs_people(problem.path, problem.states), problem, rng)
    y = inject_label_noise(drawn.y, np.asarray(drawn.group), n_classes=4, random_state=rng)
    return replace(drawn, y=y)


@lru_cache(maxsize=1)
def _acs_people(path: str, states: tuple[str, ...]) -> Dataset:
    """Return everyone in the files, with income brackets of all of them and without noise."""
    folder = Path(path)
    return load_acs_income(folder, states=states, n_samples=None, label_noise=False, random_state=0)


def _sample(data: Dataset, problem: PaperProblem, rng: np.random.Generator) -> Dataset:
    n = problem.n + problem.n_test
    if n > len(data):
        raise FaregError(f"{data.name} has {len(data)} rows, {n} are needed; use smaller sizes")
    return data.take(rng.permutation(len(data))[:n])


DATA: dict[str, DataKind] = {
    "xnor": DataKind(_synthetic("xnor"), 6, ("Color", "Gender")),
    "eight": DataKind(_synthetic("eight"), 6, ("Gender", "Age Group")),
    "none": DataKind(_synthetic("none"), 6, ("Color", "Gender")),
    "metric": DataKind(lambda p, rng: make_metric_benchmark(p.n + p.n_test, rng), 6, ("x0", "x1")),
    "nursery": DataKind(_nursery, 4, ("parents", "finance"), "nursery"),
    "cut-nursery": DataKind(_cut_nursery, 4, ("parents", "finance"), "nursery"),
    "acs": DataKind(_acs_income, 4, ("AGE", "SEX"), "nursery"),
}


# --- published tables ---------------------------------------------------------------------------


def _key(example: Any, default: Any = None, **metadata: Any) -> Any:
    """Declare a key of the settings; its value in TOML must look like the example."""
    return field(default=default, metadata={"example": example, **metadata})


@dataclass(frozen=True)
class Table:
    """The settings of a published table."""

    title: str = _key("a", "", **UNHASHED)  # empty for its name
    published: str = _key("a", **UNHASHED)  # the source of the table
    # A CSV or Parquet file, or a pattern such as ``pums/*.csv`` for several with equal columns.
    path: str = _key("a", **UNHASHED)
    target: str = _key("a")  # column of labels; rows without a label are left out
    sensitive: tuple[str, ...] = _key(["a", "b"])
    drop: tuple[str, ...] = _key(["a", "b"], ())  # unused columns: ids, copies of the target
    clusters: str = _key("a", "")  # column of ids of people with several rows; empty for none
    missing: tuple[str | float, ...] = _key(["a", 1.0], ())  # values that mean a missing value
    at_least: tuple[tuple[str, float], ...] = _key({"a": 1.0}, ())  # lower values are left out
    edges: tuple[float, ...] = _key([1.0, 2.0], ())  # classes edges[j-1] < y <= edges[j] of numbers
    name: str = field(default="", metadata=UNHASHED)
    fingerprint: str = ""  # hash of the file's content, once it is found


@dataclass(frozen=True)
class Settings:
    """What a benchmark compares, on which tables, and where the files are."""

    data: str = _key("a", ".")  # folder of the tables, relative to that of the settings
    page: str = _key("a", "")  # page to write, relative to it too; empty for one in the results
    methods: tuple[str, ...] = _key(["a", "b"], ())  # empty for all methods of fareg
    models: tuple[str, ...] = _key(["a", "b"], ("hgb", "logistic"))
    scores: tuple[str, ...] = _key(["a", "b"], ("aps", "lac"))
    labels: tuple[str, ...] = _key(["a", "b"], LABELS)  # as they are, or with noise in a group
    sizes: tuple[int, ...] = _key([1, 2], (4000,))  # rows that train and calibrate, half each
    repeats: int = _key(1, 3)  # number of seeds, 0, 1, and so on
    test_rows: int = _key(1, 5000)  # largest number of test rows
    tables: tuple[Table, ...] = ()


def read_settings(path: str | Path) -> Settings:
    """Read the settings of a benchmark, with a section ``[tables.NAME]`` for every table."""
    path = Path(path)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        reason = error.strerror or str(error)
        message = f"cannot read the settings {path}: {reason.lower()}; check the path"
        raise InvalidInputError(message) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{path} is not a TOML file: {error}") from error
    tables: Any = content.pop("tables", None)
    if not isinstance(tables, dict) or not all(isinstance(keys, dict) for keys in tables.values()):
        raise InvalidInputError(f"{path} names no table; write a section [tables.NAME] for each")
    found = [
        _parse(Table, {"title": name, **keys}, f"table {name} in {path}", name=name)
        for name, keys in tables.items()
    ]
    return _parse(Settings, content, str(path), tables=tuple(found))


def _parse(kind: type, content: dict[str, Any], where: str, **values: Any) -> Any:
    known = {key.name: key for key in fields(kind) if "example" in key.metadata}
    for name, key in known.items():
        if key.default is None and not content.get(name):
            raise InvalidInputError(f"{where} lacks {name}")
    for name, value in content.items():
        if name not in known:
            keys = ", ".join(sorted(known))
            raise InvalidInputError(f"{where} has the unknown key {name}; keys are {keys}")
        example = known[name].metadata["example"]
        if not _looks_like(value, example):
            raise InvalidInputError(f"{name} in {where} must look like {example}, got {value!r}")
        if isinstance(value, dict | list):
            values[name] = tuple(sorted(value.items()) if isinstance(value, dict) else value)
    return kind(**{**content, **values})


def _looks_like(value: Any, example: Any) -> bool:
    if isinstance(value, dict) and isinstance(example, dict):
        return _looks_like([*value.values()], [*example.values()])
    if isinstance(value, list) and isinstance(example, list):
        return all(any(_looks_like(item, one) for one in example) for item in value)
    kinds = (int, float) if isinstance(example, float) else type(example)
    return isinstance(value, kinds) and not isinstance(value, bool | list | dict)


def find_table(table: Table, root: Path) -> Table:
    """Return a table with its full path below ``root`` and the fingerprint of its content."""
    path = (root / table.path).resolve()
    files = files_of(path)
    if not files:
        raise InvalidInputError(
            f"the table {table.name} needs {root / table.path}, but there is no such file; get it "
            f"from {table.published}, or leave the table out"
        )
    return replace(table, path=str(path), fingerprint=fingerprint(files))


def files_of(path: str | Path) -> list[Path]:
    """Return the files that the path of a table, which may be a pattern, matches."""
    path = Path(path)
    return [path] if path.is_file() else sorted(path.parent.glob(path.name))


@dataclass(frozen=True, eq=False)
class People:
    """The rows of a table that have a label; labels and clusters are numbers from 0."""

    X: pd.DataFrame
    y: IntArray
    classes: tuple[str, ...]
    clusters: IntArray | None


@lru_cache(maxsize=2)
def read_people(table: Table) -> People:
    """Read the rows of a table that have a label."""
    parts = [read_table(file, labels=[table.target]) for file in files_of(table.path)]
    frame = pd.concat(parts, ignore_index=True)
    ids = [table.clusters] if table.clusters else []
    named = [table.target, *table.sensitive, *table.drop, *ids, *dict(table.at_least)]
    check_columns(named, [str(name) for name in frame.columns], table.path)
    if table.missing:
        frame = frame.mask(frame.isin(list(table.missing)))
    for column, least in table.at_least:
        frame = frame[_as_numbers(frame[column], "at_least", table) >= least]
    frame = frame[frame[table.target].notna()].reset_index(drop=True)
    labels = frame[table.target]
    if table.edges:
        numbers = _as_numbers(labels, "edges", table).to_numpy(np.float64)
        labels = pd.Series(np.searchsorted(sorted(table.edges), numbers, side="left"))
    codes, classes = pd.factorize(labels, sort=True)
    if len(classes) < 2:
        raise InvalidInputError(f"the target {table.target} of {table.name} must have two classes")
    return People(
        X=frame.drop(columns=[table.target, *table.drop, *ids]),
        y=codes.astype(np.int64),
        classes=tuple(map(str, classes)),
        clusters=pd.factorize(frame[table.clusters])[0] if ids else None,
    )


def _as_numbers(column: pd.Series, key: str, table: Table) -> pd.Series:
    numbers = pd.to_numeric(column.astype(object), errors="coerce")
    strange = column[numbers.isna() & column.notna()]
    if len(strange):
        raise InvalidInputError(
            f"{key} of {table.name} needs numbers, got {str(strange.iloc[0])[:30]!r} in column "
            f"{column.name}; name a column of numbers, or list this value as missing"
        )
    return numbers


@dataclass(frozen=True)
class TableProblem:
    """A table, its labels as they are or with noise in a random group, a base model and a seed.

    ``n`` rows train and calibrate, half each; ``n_test`` other rows test.
    """

    table: Table
    labels: str
    model: str
    n: int
    seed: int
    n_test: int

    failures_count = True  # a method that fails leaves a row with its error

    @property
    def base(self) -> BaseModel:
        return BaseModel(self.model, numbers="standard")

    def rng(self, purpose: int) -> np.random.Generator:
        """Return the generator of one purpose; problems that differ in the base model share it."""
        name = f"{self.table.fingerprint} {self.table.target} {self.labels}"
        return generator(name, self.seed, self.n, purpose)

    def prepare(self, store: Store) -> Bench:
        """Draw the rows; either all rows of a cluster are test rows or none is."""
        people = read_people(self.table)
        clusters = np.arange(len(people.y)) if people.clusters is None else people.clusters
        order = np.argsort(self.rng(DRAW).permutation(clusters.max() + 1)[clusters], kind="stable")
        ordered = clusters[order]
        n_fit = self.n + int(np.argmax(np.r_[ordered[self.n :] != ordered[self.n - 1], True]))
        drawn = order[: n_fit + self.n_test]
        X, y = people.X.iloc[drawn].reset_index(drop=True), people.y[drawn]
        group = None
        if self.labels == "noise":
            rng = self.rng(NOISE)
            group = random_group(X[list(self.table.sensitive)], rng)
            hit = group & (rng.random(len(y)) < RANDOM_LABELS)
            y = np.where(hit, rng.permutation(y), y)
        bench = Bench(
            problem=self,
            X=X,
            y=y,
            n_classes=len(people.classes),
            sensitive=list(self.table.sensitive),
            test=np.arange(n_fit, len(y)),
            calibration=np.arange(0),
            clusters=None if people.clusters is None else clusters[drawn],
            group=group,
            store=store,
        )
        fit_clusters = None if bench.clusters is None else bench.clusters[:n_fit]
        calibration = split_rows(n_fit, 0.5, fit_clusters, hash_key(bench.seed()) % 2**32)[1]
        return replace(bench, calibration=calibration)  # the calibration rows of ``fit``

    def measure(self, sets: Any, bench: Bench, cell: Any) -> dict[str, float]:
        """Return all measures, and those of split sets with the same mean size."""
        measured = table_measures(sets, bench)
        same_size = size_matched_sets(bench, cell.score, measured["mean_size"])
        matched = fairness(covered_rows(same_size, bench), bench)
        return {**measured, **{f"matched_{name}": value for name, value in matched.items()}}


def random_group(columns: pd.DataFrame, rng: np.random.Generator) -> BoolArray:
    """Return a random union of joint cells of two random features, about a fifth of the rows.

    It has at most 30% of the rows, or is the smallest cell if all are larger. Features that are
    the same for everyone are not drawn.

    >>> rng = np.random.default_rng(0)
    >>> columns = pd.DataFrame(rng.integers(5, size=(1000, 3)).astype(str), columns=list("abc"))
    >>> bool(0.1 < random_group(columns, rng).mean() < 0.35)
    True
    """
    columns = canonical(columns)
    coding = LevelCoding.learn(columns)
    codes, sizes = coding.codes(columns), coding.n_categories
    order = rng.permutation(columns.shape[1])
    chosen = [feature for feature in order if np.ptp(codes[:, feature])][:2]
    if not chosen:
        raise InvalidInputError(
            f"noise needs a group, but all rows are alike in {', '.join(map(str, columns))}; name "
            "another sensitive feature, or leave noise out"
        )
    joint = joint_codes([codes[:, f] for f in chosen], [sizes[f] for f in chosen])
    cells, which, counts = np.unique(joint, return_inverse=True, return_counts=True)
    least, most = GROUP_SHARE
    share, inside = 0.0, np.zeros(len(cells), dtype=bool)
    for cell in rng.permutation(len(cells)):
        of_cell = counts[cell] / len(columns)
        if share < least and share + of_cell <= most:
            inside[cell] = True
            share += of_cell
    if not inside.any():
        inside[counts.argmin()] = True
    return inside[which]
