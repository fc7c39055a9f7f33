"""The published group learner as a regressor: features and shortfall in, membership out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, RegressorMixin

from fareg._encoding import LARGEST, code_encoder, encoded_columns, one_hot_encoder
from fareg._rows import distinct_rows
from fareg._validation import (
    Count,
    Flag,
    FloatArray,
    Fraction01,
    InvalidInputError,
    NonNegative,
    Positive,
    all_or_nothing,
    check_count,
    check_parameters,
    check_same_length,
    one_of,
)
from fareg.paper._network import feed, latent_mean, mass_shift, soft_group
from fareg.paper._training import train_network

ENCODERS: dict[str, Any] = {"standard": one_hot_encoder, "codes": code_encoder}
MAX_CATEGORIES = 100  # rarer categories of a column share one input
MAX_WIDTH = 10_000  # units of a hidden layer


def check_sizes(name: str, value: Any) -> None:
    """Refuse anything but a tuple of layer widths."""
    if not isinstance(value, tuple | list) or not value:
        raise InvalidInputError(
            f"{name} must be a tuple with the width of each layer, got {value!r}; try (16, 8)"
        )
    for width in value:
        check_count(name, width, maximum=MAX_WIDTH)


Sizes = Annotated[tuple[int, ...], check_sizes]
Seed = Annotated[int, partial(check_count, minimum=0, maximum=2**32 - 1)]


@dataclass(eq=False, repr=False, kw_only=True)
class NetworkLearner(RegressorMixin, BaseEstimator):
    """Learn a membership probability that is high where coverage is low.

    This is a variational information bottleneck: a stochastic encoder ``p(z | x)`` of the sensitive
    features and a decoder ``q(s = 1 | z)`` minimise the coverage of their soft group,
    ``L_CC = sum(q c) / sum(q)`` subject to ``mean(q) >= delta``, plus ``beta`` times the KL
    divergence of ``p(z | x)`` from N(0, I). Then a second decoder learns to reconstruct x from z. A
    random half of the rows trains the network, and the other half stops it early.

    Parameters
    ----------
    delta : float in (0, 1], default=0.2
        Smallest mean membership.
    beta : float >= 0, default=0.01
        Weight of the KL term.
    n_restarts : int, default=4
        Networks trained together as one batched network; membership is their average.
    epochs : int, default=100
        Passes over the training rows in each stage: ``epochs * ceil(rows / batch_size)`` gradient
        steps.
    batch_size : int, default=1024
    learning_rate : float, default=0.01
    hidden_sizes : tuple of int, default=(16, 8)
    published_scale : bool, default=False
        Scale the latent noise by the log-variance and sum the KL over the batch, as the authors'
        code does; then ``beta`` has another meaning.
    numbers : {"standard", "codes"}, default="standard"
        How the network reads the columns. "standard" standardises numbers and makes an indicator of
        each category. "codes" reads every column as one raw number, a category as its number, as
        the authors' code does.
    random_state : int, default=0

    Attributes
    ----------
    found_ : bool
        False if all rows are equally well covered, or if there is only one row or cluster. Then
        nothing is trained, and every membership is zero.
    features_ : tuple of str
    encoder_ : fitted scikit-learn pipeline
    weights_ : dict of layers, each ``(W, b)`` in numpy
    shift_ : ndarray of shape (n_restarts,)
        The projection's shift on the rows of ``fit``. It is fixed, so that a row's membership never
        depends on other rows of a call.
    history_ : list of dict

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> rng = np.random.default_rng(0)
    >>> X = pd.DataFrame({"a": rng.choice([0.0, 1.0], 500), "b": rng.choice([0.0, 1.0], 500)})
    >>> hard = X["a"] == X["b"]
    >>> shortfall = (rng.random(500) < np.where(hard, 0.3, 0.02)).astype(float)
    >>> q = NetworkLearner(delta=0.5).fit(X, shortfall).predict(X)
    >>> bool(q[hard].min() > q[~hard].max())
    True
    """

    delta: Fraction01 = 0.2
    beta: NonNegative = 0.01
    n_restarts: Count = 4
    epochs: Count = 100
    batch_size: Count = 1024
    learning_rate: Positive = 0.01
    hidden_sizes: Sizes = (16, 8)
    published_scale: Flag = False
    numbers: Annotated[str, one_of(*ENCODERS)] = "standard"
    random_state: Seed = 0

    @all_or_nothing
    def fit(self, X: Any, y: Any, clusters: Any = None) -> Self:
        """Learn from a frame of canonical columns, or an array of numbers, and the shortfall y.

        The shortfall of a row is ``1 - covered``. Rows of one cluster are in the same half.
        """
        check_parameters(self)
        X = _as_frame(X)
        covered = 1 - np.asarray(y, dtype=np.float64)
        n = check_same_length(X=X, y=covered)
        if not np.isfinite(covered).all():
            raise InvalidInputError("y must be finite, got NaN or infinity; drop these rows")
        self.features_ = tuple(map(str, X.columns))
        self.history_: list[dict[str, Any]] = []
        unit = np.arange(n) if clusters is None else pd.factorize(np.asarray(clusters))[0]
        n_units = int(unit.max(initial=-1)) + 1
        self.found_ = n_units > 1 and bool(np.ptp(covered) > 0)
        if not self.found_:
            return self
        half = np.random.default_rng(self.random_state).permutation(n_units) % 2
        first, inverse = distinct_rows(X)
        distinct = X.iloc[first]
        # with a limit, scikit-learn counts categories one by one, which takes six times as long
        crowded = distinct.select_dtypes(object).nunique(dropna=False).max() > MAX_CATEGORIES
        encoder = ENCODERS[self.numbers](MAX_CATEGORIES if crowded else None)
        self.encoder_ = encoder.fit(_finite(X))
        x, trains = self.inputs(distinct), (half == 1)[unit]
        self.weights_, self.history_ = train_network(x, inverse, covered, trains, self)
        q = soft_group(latent_mean(x, self.weights_), self.weights_)
        self.shift_, _ = mass_shift(q[:, inverse], self.delta)
        return self

    def predict(self, X: Any) -> FloatArray:
        """Return the membership of each row, shape (n,) in [0, 1]."""
        X = _as_frame(X)
        if not self.found_ or not len(X):
            return np.zeros(len(X))
        first, inverse = distinct_rows(X[list(self.features_)])  # few if features are categories
        q = self.membership_of_latent(self.latent(X.iloc[first]))
        return np.asarray(q.mean(axis=0)[inverse])

    def latent(self, X: pd.DataFrame) -> FloatArray:
        """Return the latent means, shape (n_restarts, n, latent_dim)."""
        return np.asarray(latent_mean(self.inputs(X), self.weights_))

    def membership_of_latent(self, z: FloatArray) -> FloatArray:
        """Return the membership of latent points, shape (n_restarts, n)."""
        return np.asarray(np.minimum(1.0, soft_group(z, self.weights_) + self.shift_[:, None]))

    def reconstruct(self, z: FloatArray) -> FloatArray:
        """Return reconstructed inputs of the network, shape (n_restarts, n, n_inputs)."""
        return np.asarray(feed(z, self.weights_["reconstruction"]))

    def inputs(self, X: pd.DataFrame) -> FloatArray:
        """Return what the network reads, shape (n, n_inputs)."""
        return np.asarray(self.encoder_.transform(_finite(X[list(self.features_)])))

    def input_features(self) -> list[str]:
        """Return the feature that each input of the network encodes."""
        return [feature for feature, _ in encoded_columns(self.encoder_)]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.allow_nan = True
        return tags


def _as_frame(X: Any) -> pd.DataFrame:
    return X if isinstance(X, pd.DataFrame) else pd.DataFrame(X).rename(columns=str)


def _finite(X: pd.DataFrame) -> pd.DataFrame:
    """Treat numbers that are too large to square as missing."""
    numbers = X.select_dtypes("number")
    return X.assign(**numbers.where(numbers.abs() < LARGEST))
