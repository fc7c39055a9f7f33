"""Published tables as problems: their settings in one TOML file, noise in a random group."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fareg._columns import canonical, check_columns
from fareg._levels import LevelCoding
from fareg._rows import hash_key, joint_codes
from fareg._validation import BoolArray, IntArray, InvalidInputError
from fareg.classifiers import split_rows
from fareg.experiments._bench import DRAW, NOISE, Bench
from fareg.experiments._measures import covered_rows, fairness, table_measures
from fareg.experiments._methods import size_matched_sets
from fareg.experiments._settings import UNHASHED, BaseModel, fingerprint, generator
from fareg.experiments._store import Store
from fareg.workflow import read_table

FIT_SHARE = 0.6  # the most that training and calibration take of a small table
GROUP_SHARE = (0.15, 0.3)  # noise goes to a group of about this share of the rows
RANDOM_LABELS = 0.7  # share of the group whose label is drawn from everyone's labels
LABELS = ("natural", "noise")
MODELS = ("hgb", "logistic", "network")


@dataclass(frozen=True)
class Table:
    """What the settings say about a published table."""

    name: str = field(metadata=UNHASHED)
    title: str = field(metadata=UNHASHED)
    published: str = field(metadata=UNHASHED)  # where the table comes from
    # A CSV or Parquet file, or a pattern such as ``pums/*.csv`` for several with equal columns.
    path: str = field(metadata=UNHASHED)
    target: str  # column of labels; rows without a label are left out
    sensitive: tuple[str, ...]
    drop: tuple[str, ...] = ()  # columns that nobody may use: ids, weights, copies of the target
    clusters: str = ""  # column of ids of people with several rows; empty for none
    missing: tuple[str | float, ...] = ()  # words or numbers that stand for a missing value
    at_least: tuple[tuple[str, float], ...] = ()  # rows are kept if columns reach these values
    edges: tuple[float, ...] = ()  # cut a numeric target into classes edges[j-1] < y <= edges[j]
    fingerprint: str = ""  # hash of the content of the file, once it was found


@dataclass(frozen=True)
class Settings:
    """What a benchmark compares, on what, and where the files are."""

    tables: tuple[Table, ...] = ()
    data: str = "."  # the folder of the tables, from that of the settings
    page: str = ""  # the page to write, from there too; empty for page.md among the results
    methods: tuple[str, ...] = ()  # none for all of fareg's
    models: tuple[str, ...] = ("hgb", "logistic")
    scores: tuple[str, ...] = ("aps", "lac")
    labels: tuple[str, ...] = LABELS  # as they are, or with noise in a random group
    sizes: tuple[int, ...] = (4000,)  # rows that train and calibrate, half each; at most 60%
    repeats: int = 3  # how many seeds, 0, 1, and so on
    test_rows: int = 5000  # the most rows that test


@dataclass(frozen=True, eq=False)
class People:
    """The rows of a table that have a label; labels and clusters are numbers from 0."""

    X: pd.DataFrame
    y: IntArray
    classes: tuple[str, ...]
    clusters: IntArray | None


NEEDED = ("title", "published", "path", "target", "sensitive")
# For each type of a field: what TOML holds for it, of what, and how that is said.
FORMS: dict[str, tuple[type, Any, str]] = {
    "str": (str, str, 'a text, "a"'),
    "int": (int, int, "a whole number, 1"),
    "tuple[str, ...]": (list, str, 'a list of texts, ["a", "b"]'),
    "tuple[int, ...]": (list, int, "a list of whole numbers, [1, 2]"),
    "tuple[str | float, ...]": (list, str | float | int, 'a list of texts or numbers, ["a", 1]'),
    "tuple[float, ...]": (list, float | int, "a list of numbers, [1, 2]"),
    "tuple[tuple[str, float], ...]": (dict, float | int, "a number for each column, {a = 1}"),
}


def read_settings(path: str | Path) -> Settings:
    """Read what a benchmark is, with a section ``[tables.NAME]`` for every table."""
    path = Path(path)
    try:
        said = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        reason = error.strerror or str(error)
        raise InvalidInputError(f"cannot read the settings {path}: {reason.lower()}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{path} is not a TOML file: {error}") from error
    tables: Any = said.pop("tables", None)
    if not isinstance(tables, dict) or not all(isinstance(own, dict) for own in tables.values()):
        raise InvalidInputError(f"{path} names no table; write a section [tables.NAME] for each")
    found = []
    for name, own in tables.items():
        lacking = [key for key in NEEDED if not own.get(key)]
        if lacking:
            raise InvalidInputError(f"table {name} in {path} lacks {lacking[0]}")
        found.append(Table(name=name, **_checked(own, Table, f"table {name} in {path}")))
    return Settings(tables=tuple(found), **_checked(said, Settings, str(path)))


def _checked(said: dict[str, Any], kind: type, where: str) -> dict[str, Any]:
    """Return what a section says, in the types of a configuration."""
    types = {item.name: str(item.type) for item in fields(kind) if str(item.type) in FORMS}
    for hidden in ("name", "fingerprint"):
        types.pop(hidden, None)
    for key, value in said.items():
        if key not in types:
            known = ", ".join(sorted(types))
            raise InvalidInputError(f"{where} has the unknown key {key}; keys are {known}")
        outer, inner, form = FORMS[types[key]]
        items = value.values() if isinstance(value, dict) else value
        whole = isinstance(value, outer) and not isinstance(value, bool)
        if not whole or (outer in (list, dict) and not all(isinstance(x, inner) for x in items)):
            raise InvalidInputError(f"{key} in {where} must be {form}, got {value!r}")
    return {key: _frozen(value) for key, value in said.items()}


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(sorted(value.items()))
    return tuple(value) if isinstance(value, list) else value


def find_table(table: Table, root: Path) -> Table:
    """Return a table with its place below ``root`` and the fingerprint of its content."""
    path = (root / table.path).resolve()
    files = files_of(path)
    if not files:
        raise InvalidInputError(
            f"the table {table.name} needs {root / table.path}, which is not there; get it from "
            f"{table.published}, or leave the table out"
        )
    return replace(table, path=str(path), fingerprint=fingerprint(files))


def files_of(path: Path) -> list[Path]:
    """Return the files that the path of a table, perhaps a pattern, stands for."""
    return [path] if path.is_file() else sorted(path.parent.glob(path.name))


@lru_cache(maxsize=2)
def read_people(table: Table) -> People:
    """Read the rows of a table that have a label."""
    files = files_of(Path(table.path))
    frame = pd.concat(
        [read_table(file, labels=[table.target]) for file in files], ignore_index=True
    )
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
    """Return a column as the numbers that a key of the settings needs."""
    numbers = pd.to_numeric(column.astype(object), errors="coerce")
    strange = column[numbers.isna() & column.notna()]
    if len(strange):
        raise InvalidInputError(
            f"{key} of {table.name} needs numbers, column {column.name} holds "
            f"{str(strange.iloc[0])[:30]!r}; name a column of numbers, or add what means missing "
            "to missing"
        )
    return numbers


@dataclass(frozen=True)
class TableProblem:
    """A table, its labels as they are or with noise in a random group, a base model and a seed.

    ``n`` rows train and calibrate, half each; ``n_test`` others test.
    """

    table: Table
    labels: str
    model: str
    n: int
    seed: int
    n_test: int
    failures_count = True  # a method that fails leaves a row with its error

    @classmethod
    def of(
        cls, table: Table, n_rows: int, labels: str, model: str, n: int, seed: int, n_test: int
    ) -> TableProblem:
        """Return a problem that leaves enough of a small table for testing."""
        n = min(n, int(FIT_SHARE * n_rows))
        if n < 100:
            raise InvalidInputError(f"{table.name} has {n_rows} rows with a label, 170 are needed")
        return cls(table, labels, model, n, seed, min(n_test, n_rows - n))

    @property
    def base(self) -> BaseModel:
        """The base model."""
        return BaseModel(self.model, numbers="standard")

    def rng(self, purpose: int) -> np.random.Generator:
        """Return the generator of one purpose; problems that differ in the base model share it."""
        name = f"{self.table.fingerprint} {self.table.target} {self.labels}"
        return generator(name, self.seed, self.n, purpose)

    def prepare(self, store: Store) -> Bench:
        """Draw the rows; of a cluster, either all rows test or none does."""
        people = read_people(self.table)
        clusters = np.arange(len(people.y)) if people.clusters is None else people.clusters
        order = np.argsort(self.rng(DRAW).permutation(clusters.max() + 1)[clusters], kind="stable")
        turn = clusters[order]
        n_fit = self.n + int(np.argmax(np.r_[turn[self.n :] != turn[self.n - 1], True]))
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
        own = None if bench.clusters is None else bench.clusters[:n_fit]
        calibration = split_rows(n_fit, 0.5, own, hash_key(bench.seed) % 2**32)[1]
        return replace(bench, calibration=calibration)  # the rows that ``fit`` keeps for it

    def measure(self, sets: Any, bench: Bench, cell: Any) -> dict[str, float]:
        """Return every measure, and those of split sets with the same mean size."""
        measured = table_measures(sets, bench)
        same_size = size_matched_sets(bench, cell.score, measured["mean_size"])
        matched = fairness(covered_rows(same_size, bench), bench)
        return {**measured, **{f"matched_{name}": value for name, value in matched.items()}}


def random_group(columns: pd.DataFrame, rng: np.random.Generator) -> BoolArray:
    """Return a random union of joint cells of two random features, about a fifth of the rows.

    It has 30% of the rows at most; if every cell has more, it is the smallest one. Features that
    tell nobody apart are not drawn.

    >>> rng = np.random.default_rng(0)
    >>> columns = pd.DataFrame(rng.integers(5, size=(1000, 3)).astype(str), columns=list("abc"))
    >>> bool(0.1 < random_group(columns, rng).mean() < 0.35)
    True
    """
    columns = canonical(columns)
    coding = LevelCoding.learn(columns)
    codes, sizes = coding.codes(columns), coding.n_levels
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
        own = counts[cell] / len(columns)
        if share < least and share + own <= most:
            inside[cell] = True
            share += own
    if not inside.any():
        inside[counts.argmin()] = True
    return inside[which]
