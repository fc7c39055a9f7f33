"""The published classifier, with the hyperparameters of its data sets."""

from __future__ import annotations

import difflib
from copy import copy
from dataclasses import dataclass
from typing import Annotated, Any, Self

import numpy as np
from sklearn.base import clone

from fareg._validation import (
    Count,
    Flag,
    FloatArray,
    Fraction01,
    InvalidInputError,
    NonNegative,
    Positive,
    check_choice,
    one_of,
    require,
)
from fareg.calibration import Batch, Labelled, Sample, Union
from fareg.classifiers import ConformalClassifier, Training
from fareg.paper._draws import DrawnGroups
from fareg.paper._explanation import Explanation, explain_network
from fareg.paper._learner import ENCODERS, NetworkLearner, Sizes

# published hyperparameters of each data set; those of "synthetic" are the defaults of the class
SETTINGS: dict[str, dict[str, Any]] = {
    "synthetic": {},
    "nursery": {"epochs": 800, "learning_rate": 1e-2, "beta": 0.1, "delta": 0.1, "n_draws": 100},
}
PAPER_SYMBOLS = {  # symbols of the paper, and the parameters here
    "alpha": "pass confidence_level=0.9 for alpha=0.1",
    "T": "the paper's T is n_draws",
}
NETWORK = tuple(name for name in NetworkLearner().get_params() if name != "random_state")
SHARED = ("confidence_level", "conformity_score", "sensitive_features")


def check_base(name: str, base: Any) -> None:
    if not isinstance(base, ConformalClassifier):
        raise InvalidInputError(
            f"{name} must be a conformal classifier of fareg, got {type(base).__name__}"
        )
    base._check_parameters()


@dataclass(eq=False, repr=False, kw_only=True)
class PublishedFaReGClassifier(ConformalClassifier):
    """FaReG as published: the union over random draws of one learned group.

    A network learns a membership from the calibration rows: half of them train it, and it is
    stopped early on the other half (4,096 rows of it at most). ``n_draws`` random groups are drawn
    from the membership, and each is calibrated on its members. The set is the union over the row's
    groups and the marginal set (Eq. Construct). ``P(Y in C(X)) >= 1 - alpha``, because the marginal
    set is part of it. Nothing is proven for the groups: the calibration rows have learned them.

    Parameters
    ----------
    estimator, confidence_level, conformity_score, label_conditional, calibration_size, \
allow_empty, random_state
        As in :class:`SplitConformalClassifier`.
    sensitive_features : list of names or positions, or function of X, default=None
        The features that the network reads; None for all columns.
    n_draws : int, default=20
        Number of random groups, the paper's T.
    base : conformal classifier, default=None
        Another method of this package that reads the same features. The network learns where its
        sets cover too little, and they join the union.
    delta, beta, n_restarts, epochs, batch_size, learning_rate, hidden_sizes, published_scale, \
numbers
        As in :class:`fareg.paper.NetworkLearner`, with the published values for synthetic data.

    Attributes
    ----------
    learner_ : NetworkLearner
        The fitted network.
    thresholds_ : ndarray of shape (1 + n_draws, n_labels)
        Those of everyone, then those of each draw.

    Examples
    --------
    >>> from fareg import FaReGClassifier
    >>> from fareg.datasets import make_synthetic
    >>> data = make_synthetic(1500, random_state=0)
    >>> known = {"sensitive_features": list(data.sensitive), "random_state": 0}
    >>> clf = FaReGClassifier.paper(epochs=200, **known).fit(data.X[:1000], data.y[:1000])
    >>> clf.predict_set(data.X[1000:]).shape
    (500, 6)
    >>> bool((clf.predict_set(data.X[1000:]) >= clf.with_draws(5).predict_set(data.X[1000:])).all())
    True
    """

    n_draws: Count = 20
    base: Annotated[ConformalClassifier, check_base] | None = None
    delta: Fraction01 = 0.3
    beta: NonNegative = 2.0
    n_restarts: Count = 1
    epochs: Count = 2000
    batch_size: Count = 500
    learning_rate: Positive = 1e-3
    hidden_sizes: Sizes = (64, 32)
    published_scale: Flag = True
    numbers: Annotated[str, one_of(*ENCODERS)] = "codes"

    @classmethod
    def published(
        cls,
        estimator: Any = None,
        *,
        data: str = "synthetic",
        epochs: int | None = None,
        **settings: Any,
    ) -> Self:
        """Return the classifier with the published hyperparameters of a data set.

        ``settings`` change single parameters of the class; without ``epochs``, use the published
        number.
        """
        if epochs is not None:
            settings["epochs"] = epochs
        known = cls().get_params(deep=False)
        for name in settings:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(known)}"
                hint = PAPER_SYMBOLS.get(name, hint)
                raise InvalidInputError(f"FaReGClassifier.paper has no parameter {name}; {hint}")
        return cls(estimator, **{**SETTINGS[check_choice("data", data, SETTINGS)], **settings})

    def with_draws(self, n_draws: int) -> Self:
        """Return this fitted classifier with only the first of its random draws."""
        self._check_fitted()
        drawn, other = self._drawn.first(n_draws), copy(self).set_params(n_draws=n_draws)
        has_base = self.base is not None
        other.calibration_ = Union((drawn, self.calibration_.parts[1])) if has_base else drawn
        other.freeze_parameters()
        return other

    def predict_group(self, X: Any, *, sensitive_features: Any = None) -> FloatArray:
        """Return the membership of each row in the learned group, shape (n_samples,)."""
        return self.learner_.predict(self._read_people(X, sensitive_features))

    def explain(self, X: Any, *, sensitive_features: Any = None) -> Explanation:
        """Show which features make the group, and how, on some rows such as test rows."""
        people = self._read_people(X, sensitive_features)
        return explain_network(self.learner_, people, self.key_ % 2**32)

    @property
    def learner_(self) -> NetworkLearner:
        """The fitted network."""
        learner: NetworkLearner = self._drawn.learner
        return learner

    @property
    def thresholds_(self) -> FloatArray:
        """Thresholds of everyone and of each draw, shape (1 + n_draws, n_labels)."""
        return self._drawn.quantiles

    @property
    def _drawn(self) -> DrawnGroups:
        calibration = self.calibration_
        return calibration.parts[0] if isinstance(calibration, Union) else calibration

    def _calibrate(self, rows: Labelled, training: Training | None) -> Any:
        by_label, base = self.label_conditional, None
        sample = Sample.from_rows(rows, label_conditional=by_label)
        reached = sample.split_thresholds(self.alpha_)[sample.row_labels]
        if self.base is not None:  # calibrated on the same scores, with the same confidence
            method = clone(self.base)
            method.alpha_, method.key_, method.label_conditional = self.alpha_, self.key_, by_label
            base = method._calibrate(rows, training)
            # only the score of the true label is known, so it stands for all labels
            scores = np.repeat(rows.score[:, None], rows.n_classes, axis=1)
            thresholds = base.thresholds(Batch(rows.people, scores, scores, rows.u))
            reached = np.broadcast_to(thresholds, scores.shape)[np.arange(len(rows)), rows.y]
        covered = (rows.y >= 0) & (rows.score <= reached)
        settings = {name: getattr(self, name) for name in NETWORK}
        learner = NetworkLearner(**settings, random_state=self.key_ % 2**32)
        learner.fit(rows.people, 1.0 - covered, rows.clusters)
        options: dict[str, Any] = {"n_draws": self.n_draws, "label_conditional": by_label}
        drawn = DrawnGroups.fit(learner, rows, self.alpha_, **options)
        return drawn if base is None else Union((drawn, base))

    def _promised_to(self) -> str:  # nothing for groups: the calibration rows have learned them
        return "everyone together, though for no group"

    def _check_parameters(self) -> None:
        super()._check_parameters()
        base, defaults = self.base, None if self.base is None else type(self.base)()
        for name in SHARED if base is not None else ():
            outer, inner = getattr(self, name), getattr(base, name)
            if inner not in (getattr(defaults, name), outer):
                raise InvalidInputError(
                    f"base must have the {name} of the classifier around it, {outer!r}, got "
                    f"{inner!r}; leave it out of the base"
                )

    def check(self) -> None:
        """Refuse a fitted state whose parts contradict each other, as in an edited file."""
        drawn: Any = self._drawn
        learner: Any = getattr(drawn, "learner", None)
        require(isinstance(drawn, DrawnGroups) and drawn.n_draws == self.n_draws, "n_draws")
        require((drawn is self.calibration_) == (self.base is None), "base")
        require(isinstance(learner, NetworkLearner) and type(learner.found_) is bool, "learner_")
        settings = learner.get_params()
        require(all(settings[name] == getattr(self, name) for name in NETWORK), "learner_")
        super().check()
