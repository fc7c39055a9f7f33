"""Learning the group: screen features, train the network, keep what numpy needs to apply it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Self

import numpy as np
import pandas as pd
from scipy.special import expit
from sklearn.base import BaseEstimator
from sklearn.tree import DecisionTreeRegressor

from fareg._encoding import (
    LARGEST,
    code_encoder,
    encoded_columns,
    one_hot_encoder,
    piecewise_encoder,
)
from fareg._levels import distinct_rows
from fareg._validation import (
    BoolArray,
    Count,
    Flag,
    FloatArray,
    Fraction01,
    Function,
    IntArray,
    InvalidInputError,
    NonNegative,
    Positive,
    all_or_nothing,
    check_choice,
    check_count,
    check_fraction,
    check_parameters,
    check_same_length,
    one_of,
)
from fareg.groups._disadvantage import MEMBERS, learn_members, stack_members
from fareg.groups._folds import N_FOLDS, Folds
from fareg.groups._network import feed, latent_mean, membership_logits
from fareg.groups._projection import mass_shift
from fareg.groups._screening import MANY_ROWS, Screening, screen_features
from fareg.groups._training import TrainingPlan, train_groups

MAX_CATEGORIES = 100  # rarer categories of a column share one input
MAX_LEARNING_ROWS = 50_000  # rows that a disadvantage is learned from, at most
MIN_LEARNING_ROWS = 50  # fewer rows say nothing about who is worse off
ENCODERS: dict[str, Any] = {
    "standard": one_hot_encoder,
    "piecewise": piecewise_encoder,
    "codes": code_encoder,
}
MAX_PERMUTATIONS = 999
MAX_WIDTH = 10_000  # units of a hidden layer
CHUNK = 65_536  # rows whose membership is computed at once


def _check_significance(name: str, value: Any) -> None:
    least = 1 / (1 + MAX_PERMUTATIONS)
    if check_fraction(name, value) < least:
        raise InvalidInputError(
            f"{name} must be at least {least:g}, the smallest p-value of {MAX_PERMUTATIONS} "
            f"shuffles, got {value!r}; no group would ever be found"
        )


def _check_sizes(name: str, value: Any) -> None:
    if not isinstance(value, tuple | list) or not value:
        raise InvalidInputError(
            f"{name} must be a tuple with the width of each layer, got {value!r}; try (16, 8)"
        )
    for width in value:
        check_count(name, width, maximum=MAX_WIDTH)


def _check_members(name: str, value: Any) -> None:
    if not isinstance(value, tuple | list):
        raise InvalidInputError(f"{name} must be a tuple of names, got {value!r}; use ({value!r},)")
    for member in value:
        check_choice(name, member, MEMBERS)


@dataclass(eq=False, repr=False, kw_only=True)
class GroupLearner(BaseEstimator):
    """Learn a membership probability that is high where coverage is low.

    A variational information bottleneck: a stochastic encoder ``p(z | x)`` of the sensitive
    features, a decoder ``q(s = 1 | z)`` that minimises the coverage of its soft group,
    ``L_CC = sum(q c) / sum(q)`` subject to ``mean(q) >= delta``, plus ``beta`` times the KL
    divergence of ``p(z | x)`` from N(0, I); then a second decoder learns to reconstruct x from z.

    Parameters
    ----------
    delta : float in (0, 1], default=0.2
        Smallest mean membership.
    beta : float >= 0, default=0.01
        Weight of the KL term.
    n_restarts : int, default=4
        Networks trained together as one batched network; membership is their average.
    max_iter : int, default=100
        Gradient steps of the group stage; the reconstruction stage takes half as many.
    select_features : bool, default=True
        Train on the features that screening selects; the network sees all of them otherwise.
    significance : float or None, default=0.1
        Give up when screening finds no feature that tells the target at this level (``found_`` is
        False then, and nothing is trained). None never gives up. The level is at least 0.001, the
        smallest p-value that screening can give.
    cross_fit : bool, default=True
        Restarts train on different folds, four in all, and stop early on the others. Otherwise all
        train on the same random half, as published.
    batch_size : int, default=1024
    learning_rate : float, default=0.01
    hidden_sizes : tuple of int, default=(16, 8)
    published_scale : bool, default=False
        Scale the latent noise by the log-variance and sum the KL over the batch, as the authors'
        code does; ``beta`` has another meaning then.
    members : tuple of str, default=()
        Which models predict the disadvantage, of "cells" (means of joint cells of a few features),
        "network" (this one), "kernel" (kernel ridge regression on the features of the cells) and
        "boosting" (trees). Their predictions are added with weights that rows chose which they had
        not seen. Without members only membership is learned.
    numbers : {"standard", "piecewise", "codes"}, default="standard"
        How the network reads the columns. "standard" standardises numbers and makes an indicator of
        each category. "piecewise" tells how far a number fills each of eight quantile bins. "codes"
        reads every column as one raw number, a category as the number of its level.
    progress : function (stage, step, n_steps, loss), default=None
    random_state : int, default=0

    Attributes
    ----------
    found_ : bool
    features_ : tuple of str
        Names of the columns that membership depends on.
    screening_ : Screening or None
    encoder_ : fitted scikit-learn pipeline
    weights_ : dict of layers, each ``(W, b)`` in numpy
    shift_ : ndarray of shape (n_restarts,)
        The projection's shift, frozen on the rows of ``fit``: a row's membership never depends on
        the rows beside it.
    history_ : list of dict
    out_of_fold_ : ndarray of shape (n,)
        The disadvantage of each row of ``fit``, by models that did not see it (with members).
    signal_ : Signal
        How much of the target these predictions explain, and whether that could be chance.
    disadvantage_ : Disadvantage
        The fitted members and their weights.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from fareg.groups import GroupLearner
    >>> rng = np.random.default_rng(0)
    >>> columns = pd.DataFrame({"a": rng.choice([0.0, 1.0], 500), "b": rng.choice([0.0, 1.0], 500)})
    >>> hard = columns["a"] == columns["b"]
    >>> covered = (rng.random(500) < np.where(hard, 0.7, 0.98)).astype(float)
    >>> learner = GroupLearner(max_iter=50).fit(columns, covered)
    >>> bool(learner.membership(columns)[hard].min() > learner.membership(columns)[~hard].max())
    True
    """

    delta: Fraction01 = 0.2
    beta: NonNegative = 0.01
    n_restarts: Count = 4
    max_iter: Count = 100
    select_features: Flag = True
    significance: Annotated[float, _check_significance] | None = 0.1
    cross_fit: Flag = True
    batch_size: Count = 1024
    learning_rate: Positive = 0.01
    hidden_sizes: Annotated[tuple[int, ...], _check_sizes] = (16, 8)
    published_scale: Flag = False
    members: Annotated[tuple[str, ...], _check_members] = ()
    numbers: Annotated[str, one_of(*ENCODERS)] = "standard"
    progress: Function | None = None
    random_state: Annotated[int, partial(check_count, minimum=0, maximum=2**32 - 1)] = 0

    @all_or_nothing
    def fit(self, columns: pd.DataFrame, covered: FloatArray, clusters: Any = None) -> Self:
        """Learn from canonical columns of shape (n, n_features) and ``covered`` in [0, 1].

        Rows with the same id in ``clusters``, an array of shape (n,), are held out together while
        a disadvantage is learned. With fewer ids than folds, five, there is nothing to learn from.
        """
        check_parameters(self)
        check_same_length(columns=columns, covered=covered)
        self.screening_: Screening | None = None
        self.features_ = tuple(map(str, columns.columns))
        self.history_: list[dict[str, Any]] = []
        self.found_ = len(covered) > 0 and bool(np.ptp(covered) > 0)
        if self.members:
            self._learn_disadvantage(columns, covered, clusters)
            return self
        if self.found_ and (self.select_features or self.significance is not None):
            self._screen(columns, covered)
        if self.found_:
            self._train(columns[list(self.features_)], covered, self._training_rows(len(covered)))
        return self

    def disadvantage(self, columns: pd.DataFrame) -> FloatArray:
        """Return the expected shortfall ``1 - covered`` of each row, shape (n,) in [0, 1].

        Without members it is the membership.
        """
        if not self.members:
            return self.membership(columns)
        predict = partial(self.disadvantage_.predict, membership=self._average_membership)
        return _asked_once(predict, columns[list(self.disadvantage_.columns)])

    def membership(self, columns: pd.DataFrame) -> FloatArray:
        """Return the membership probability of each row, shape (n,); zeros if nothing was found."""
        self.check_membership("membership")
        if not self.found_:
            return np.zeros(len(columns))
        return self._average_membership(columns)

    def check_membership(self, caller: str) -> None:
        """Refuse members of which none learns a membership, as only the network does."""
        if self.members and "network" not in self.members:
            raise InvalidInputError(
                f"{caller} needs the network, which alone learns a membership, got "
                f'members={self.members!r}; add "network" to them'
            )

    def latent(self, columns: pd.DataFrame) -> FloatArray:
        """Return the latent means, shape (n_restarts, n, latent_dim)."""
        return np.asarray(latent_mean(self.inputs(columns), self.weights_))

    def membership_of_latent(self, z: FloatArray) -> FloatArray:
        """Return the membership of latent points, shape (n_restarts, n)."""
        q = expit(membership_logits(z, self.weights_))
        return np.asarray(np.minimum(1.0, q + self.shift_[:, None]))

    def reconstruct(self, z: FloatArray) -> FloatArray:
        """Return reconstructed inputs of the network, shape (n_restarts, n, n_inputs)."""
        return np.asarray(feed(z, self.weights_["reconstruction"]))

    def inputs(self, columns: pd.DataFrame) -> FloatArray:
        """Return what the network reads, shape (n, n_inputs)."""
        return np.asarray(self.encoder_.transform(_finite(columns[list(self.features_)])))

    def input_features(self) -> list[str]:
        """Return for each input of the network the feature that it encodes."""
        return [feature for feature, _ in encoded_columns(self.encoder_)]

    def _screen(self, columns: pd.DataFrame, covered: FloatArray) -> None:
        n_permutations = 0
        if self.significance is not None:
            fewest = 19 if len(covered) > MANY_ROWS else 99
            n_permutations = min(MAX_PERMUTATIONS, max(fewest, math.ceil(1 / self.significance)))
        screening = screen_features(
            columns, 1 - covered, n_permutations=n_permutations, random_state=self.random_state
        )
        self.screening_ = screening
        if self.select_features:
            self.features_ = screening.selected
        if self.significance is not None:
            self.found_ = screening.p_value <= self.significance

    def _learn_disadvantage(
        self, columns: pd.DataFrame, covered: FloatArray, clusters: Any
    ) -> None:
        rng = np.random.default_rng(self.random_state)
        everyone = Folds.draw(len(covered), clusters, rng)
        learns = everyone.part(min(1.0, MAX_LEARNING_ROWS / max(1, len(covered))), rng)
        folds, target = everyone.take(learns), 1 - covered[learns]
        predictions: dict[str, FloatArray] = {}
        models: dict[str, Any] = {}
        enough = len(target) >= MIN_LEARNING_ROWS and folds.is_complete
        if self.found_ and enough and np.ptp(target) > 0:
            seen = columns[learns]
            reads, predictions, models = learn_members(seen, target, folds, self.members, rng)
            chosen = Counter(name for names in reads for name in names)
            if chosen:
                self.features_ = tuple(name for name, _ in chosen.most_common())
            if chosen and "network" in self.members:
                predictions["network"] = self._train_folds(seen, covered[learns], folds, reads)
        stacked, self.disadvantage_, self.signal_ = stack_members(
            tuple(map(str, columns.columns)), target, folds, predictions, models
        )
        self.found_ = self.signal_.credible
        self.out_of_fold_ = np.empty(len(covered))
        self.out_of_fold_[learns] = stacked
        self.out_of_fold_[~learns] = self.disadvantage(columns[~learns])

    def _train_folds(
        self,
        columns: pd.DataFrame,
        covered: FloatArray,
        folds: Folds,
        reads: tuple[tuple[str, ...], ...],
    ) -> FloatArray:
        """Train one network per fold on the features chosen without it; return its memberships."""
        trains = folds.trains()
        stops = folds.fold == (np.arange(N_FOLDS)[:, None] + 1) % N_FOLDS
        x, which = self._train(
            columns[list(self.features_)], covered, trains & ~stops, stops=stops, reads=reads
        )
        q = self.membership_of_latent(latent_mean(x, self.weights_))
        return np.asarray(folds.own(q[:, which]))

    def _train(
        self,
        columns: pd.DataFrame,
        covered: FloatArray,
        trains: BoolArray,
        *,
        stops: BoolArray | None = None,
        reads: tuple[tuple[str, ...], ...] | None = None,
    ) -> tuple[FloatArray, IntArray]:
        """Train a restart per row of ``trains``; return the inputs of distinct rows, and which."""
        first, which = distinct_rows(columns)
        distinct = columns.iloc[first]
        # scikit-learn counts levels one by one if there is a limit: six times slower than without
        crowded = distinct.select_dtypes(object).nunique(dropna=False).max() > MAX_CATEGORIES
        encoder = ENCODERS[self.numbers](MAX_CATEGORIES if crowded else None)
        self.encoder_ = encoder.fit(_finite(columns))
        x = self.inputs(distinct)
        plan = TrainingPlan(
            delta=float(self.delta),
            beta=float(self.beta),
            max_iter=int(self.max_iter),
            batch_size=int(self.batch_size),
            learning_rate=float(self.learning_rate),
            hidden_sizes=tuple(map(int, self.hidden_sizes)),
            published_scale=bool(self.published_scale),
            seed=int(self.random_state),
        )
        inputs = None
        if reads is not None:
            inputs = np.array([np.isin(self.input_features(), names) for names in reads])
        self.weights_, self.history_ = train_groups(
            x, which, covered, trains, plan, self.progress, stops=stops, reads=inputs
        )
        q = expit(membership_logits(latent_mean(x, self.weights_), self.weights_))
        self.shift_, _ = mass_shift(q[:, which], self.delta)
        return x, which

    def _training_rows(self, n: int) -> Any:
        n_folds = 4 if self.cross_fit else 2
        fold = np.random.default_rng(self.random_state).permutation(n) % n_folds
        held_out = np.arange(self.n_restarts) % n_folds if self.cross_fit else [0] * self.n_restarts
        return np.stack([fold != k for k in held_out])

    def _average_membership(self, columns: pd.DataFrame) -> FloatArray:
        """Return the membership, averaged over restarts, whether or not a group was found."""
        return _asked_once(
            lambda rows: self.membership_of_latent(self.latent(rows)).mean(axis=0),
            columns[list(self.features_)],
        )


def _asked_once(predict: Callable[[pd.DataFrame], FloatArray], rows: pd.DataFrame) -> FloatArray:
    """Return a prediction for each row, asked for once per distinct row, some rows at a time."""
    first, which = distinct_rows(rows)  # few if the features are categories
    parts = [predict(rows.iloc[first[i : i + CHUNK]]) for i in range(0, len(first), CHUNK)]
    return np.concatenate(parts)[which] if parts else np.empty(0)


def _finite(columns: pd.DataFrame) -> pd.DataFrame:
    """Treat numbers too large to be squared as missing."""
    numbers = columns.select_dtypes("number")
    return columns.assign(**numbers.where(numbers.abs() < LARGEST))


def cut_membership(
    q: FloatArray, covered: FloatArray, *, n_cells: int = 2, min_share: float = 0.05
) -> FloatArray:
    """Return cut points of membership that best separate high from low ``covered``.

    Least squares on ``covered`` with at most ``n_cells`` cells of at least ``min_share`` of the
    rows each; an empty array if membership does not vary.
    """
    min_rows = max(1, int(np.ceil(min_share * len(q))))
    if 2 * min_rows > len(q):
        return np.empty(0)
    tree = DecisionTreeRegressor(max_leaf_nodes=n_cells, min_samples_leaf=min_rows)
    tree.fit(q[:, None], covered)
    return np.sort(tree.tree_.threshold[tree.tree_.feature >= 0])


def cells_of(q: FloatArray, cuts: FloatArray) -> IntArray:
    """Return the cell of each row: 0 for the lowest membership."""
    return np.searchsorted(cuts, q, side="left").astype(np.int64)
