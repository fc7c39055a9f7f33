"""Contests: one draw of a table and one base model, which all methods and scores share."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin

from fareg._columns import canonical
from fareg._hashing import hash_key
from fareg._levels import LevelCoding, joint_codes
from fareg._validation import BoolArray, FloatArray, IntArray, InvalidInputError
from fareg.classifiers import split_rows
from fareg.experiments._config import BaseConfig, content_hash, generator
from fareg.experiments._network import train_network
from fareg.experiments._problems import said_by
from fareg.experiments._store import Store
from fareg.experiments.arena._measures import TestRows
from fareg.experiments.arena._tables import Table, read_people
from fareg.workflow import MODELS

DRAW, NOISE, TRAIN, FIT, MEASURE = range(5)  # what random numbers are drawn for
FIT_SHARE = 0.6  # the most that training and calibration take of a small table
GROUP_SHARE = (0.15, 0.3)  # noise goes to a group of about this share of the rows
RANDOM_LABELS = 0.7  # share of the group whose label is drawn from everyone's labels
NETWORK = "network"
BASE_MODELS = ("hgb", "logistic", NETWORK)
LABELS = ("natural", "noise")


@dataclass(frozen=True)
class Contest:
    """A table, its labels as they are or with noise in a random group, a base model and a seed.

    ``n`` rows train and calibrate, half each; ``n_test`` others test.
    """

    table: Table
    labels: str
    model: str
    n: int
    seed: int
    n_test: int

    @property
    def training_cost(self) -> float:
        """Roughly the seconds of the trainings: one, and five out of fold."""
        return 6 * (1 + self.n / (200 if self.model == NETWORK else 2000))

    def rng(self, purpose: int) -> np.random.Generator:
        """Return the generator of one purpose; contests that differ in the base model share it."""
        name = f"{self.table.fingerprint} {self.table.target} {self.labels}"
        return generator(name, self.seed, self.n, purpose)


class Trainings:
    """Every training of a contest's base model is done once and remembered, also on disk.

    What a model says is kept for all rows of the contest, by row number; a training is known by
    its rows, and by its labels if they are others than those of the contest. ``charged`` adds up
    the seconds of the trainings that were asked for, done now or remembered; ``spent`` the seconds
    that asking for them took.
    """

    def __init__(
        self, contest: Contest, X: pd.DataFrame, y: IntArray, n_classes: int, store: Store
    ) -> None:
        self.contest, self.X, self.y = contest, X, y
        self.n_classes, self.store = n_classes, store
        self.charged, self.spent = 0.0, 0.0
        self.known: dict[str, tuple[FloatArray, float]] = {}

    def __deepcopy__(self, memo: Any) -> Self:
        """Clones of an estimator share what is remembered."""
        return self

    def answers(self, rows: IntArray, y: IntArray) -> FloatArray:
        """Return the class probabilities of all rows, by a model trained on ``rows``."""
        start = time.process_time()
        others = b"" if np.array_equal(y, self.y[rows]) else y.tobytes()
        digest = hashlib.sha256(rows.tobytes() + others).hexdigest()
        if digest not in self.known:
            key = content_hash("arena training", self.contest, digest)
            said = self.store.once(key, lambda: self._train(rows, y))
            proba = said.drop(columns="seconds").to_numpy(np.float64)
            self.known[digest] = proba, float(said["seconds"].iloc[0])
        proba, seconds = self.known[digest]
        self.charged += seconds
        self.spent += time.process_time() - start
        return proba

    def numbers_of(self, X: Any) -> IntArray:
        """Return the numbers of rows; a frame that a method has changed is refused."""
        if not isinstance(X, pd.DataFrame):
            raise InvalidInputError(
                f"a method must hand its rows to the estimator as the frame that it got, with its "
                f"index, got {type(X).__name__}"
            )
        if not X.index.isin(self.X.index).all() or not X.equals(self.X.loc[X.index]):
            raise InvalidInputError(
                "a method must hand its rows to the estimator as it got them, got other values, "
                "columns or index; models of a benchmark are remembered by rows and labels"
            )
        return X.index.to_numpy(np.int64)

    def _train(self, rows: IntArray, y: IntArray) -> pd.DataFrame:
        seed = int(self.contest.rng(TRAIN).integers(2**31))
        X = self.X.loc[rows]
        start = time.process_time()
        if self.contest.model == NETWORK:
            model = train_network(BaseConfig(numbers="standard"), X, y, seed)
        else:
            model = MODELS[self.contest.model](seed).fit(X, y)
        seconds = time.process_time() - start
        said = said_by(model, self.X, self.n_classes).astype(np.float32)
        return said.assign(seconds=seconds)


class RememberedModel(ClassifierMixin, BaseEstimator):
    """The base model of a contest: its trainings are looked up by their rows and labels."""

    def __init__(self, trainings: Any = None) -> None:
        self.trainings = trainings

    def fit(self, X: pd.DataFrame, y: IntArray) -> Self:
        """Remember, or train."""
        rows = self.trainings.numbers_of(X)
        self.proba_ = self.trainings.answers(rows, np.asarray(y, dtype=np.int64))
        self.classes_ = np.arange(self.proba_.shape[1])
        return self

    def predict_proba(self, X: pd.DataFrame) -> FloatArray:
        """Return the class probabilities of rows, found by the index of the frame."""
        proba = self.proba_[self.trainings.numbers_of(X)]
        return proba / proba.sum(axis=1, keepdims=True)

    def predict(self, X: pd.DataFrame) -> IntArray:
        """Return the most probable classes."""
        return self.predict_proba(X).argmax(axis=1)


@dataclass(frozen=True, eq=False)
class Arena:
    """All that the methods of one contest share; labels are numbers from 0."""

    contest: Contest
    X: pd.DataFrame  # the rows that train and calibrate
    y: IntArray
    clusters: IntArray | None
    group: Any  # (n,) who got noise; None if nobody did
    test: TestRows
    trainings: Trainings
    store: Store
    fits: dict[Any, Any]  # fitted classifiers that several cells use

    @property
    def seed(self) -> int:
        """The random state of every method: the same split, and the same randomised scores."""
        return int(self.contest.rng(FIT).integers(2**31))

    def fit(self, model: Any) -> Any:
        """Fit a method on the rows that train and calibrate."""
        apart = {} if self.clusters is None else {"clusters": self.clusters}
        return model.fit(self.X, self.y, **apart)

    @property
    def calibration(self) -> IntArray:
        """The rows that ``fit`` keeps for calibration."""
        seed = hash_key(self.seed) % 2**32
        return split_rows(len(self.y), 0.5, self.clusters, seed)[1]


def enter(contest: Contest, store: Store) -> Arena:
    """Draw the rows of a contest; of a cluster, either all rows test or none does."""
    people = read_people(contest.table)
    rng = contest.rng(DRAW)
    clusters = np.arange(len(people.y)) if people.clusters is None else people.clusters
    order = np.argsort(rng.permutation(clusters.max() + 1)[clusters], kind="stable")
    turn = clusters[order]
    n_fit = contest.n + int(np.argmax(np.r_[turn[contest.n :] != turn[contest.n - 1], True]))
    drawn = order[: n_fit + contest.n_test]
    X, y = people.X.iloc[drawn].reset_index(drop=True), people.y[drawn]
    group = None
    if contest.labels == "noise":
        rng = contest.rng(NOISE)
        group = random_group(X[list(contest.table.sensitive)], rng)
        hit = group & (rng.random(len(y)) < RANDOM_LABELS)
        y = np.where(hit, rng.permutation(y), y)
    test = TestRows(
        X.iloc[n_fit:],
        y[n_fit:],
        contest.table.sensitive,
        None if group is None else group[n_fit:],
        int(contest.rng(MEASURE).integers(2**31)),
    )
    return Arena(
        contest=contest,
        X=X.iloc[:n_fit],
        y=y[:n_fit],
        clusters=None if people.clusters is None else clusters[drawn[:n_fit]],
        group=None if group is None else group[:n_fit],
        test=test,
        trainings=Trainings(contest, X, y, len(people.classes), store),
        store=store,
        fits={},
    )


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
