"""Where the time of FaReG goes: seconds by stage, matrix products apart from everything else."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np
from measure import Row, seconds
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline

from fareg import FaReGClassifier
from fareg._encoding import one_hot_encoder
from fareg.classifiers import _base, _fareg, _mondrian
from fareg.datasets import make_synthetic
from fareg.groups import GroupLearner, _learner, _training

BASE, PRODUCTS = "base model", "matrix products"
STAGES = [  # (stage, where a function lives, its name)
    ("reading the table", _fareg, "select_columns"),
    ("reading the table", _fareg, "take_rows"),
    ("hashing rows", _base, "row_uniforms"),
    ("screening features", _learner, "screen_features"),
    ("encoding features", GroupLearner, "_encoded"),
    ("encoding features", Pipeline, "fit"),
    ("training", _training, "train_groups"),
    ("training", GroupLearner, "_train"),
    ("membership", GroupLearner, "membership"),
    ("calibration", _mondrian.MondrianClassifier, "_calibrate_views"),
    ("rule and description", _fareg, "distil_rule"),
    ("rule and description", FaReGClassifier, "_describe_groups"),
]
TORCH_PRODUCTS = ("bmm", "mm", "addmm", "baddbmm")
N_FIT, N_PREDICT = 100_000, 1_000_000


class Stages:
    """Seconds in named functions, each without the named functions that it calls."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._inner = [0.0]

    def timed(self, stage: str, function: Callable) -> Callable:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            self._inner.append(0.0)
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                elapsed = time.perf_counter() - start
                self.seconds[stage] += elapsed - self._inner.pop()
                self._inner[-1] += elapsed

        return wrapper


class TimedProducts(np.ndarray):
    """Weights that note how long their matrix products take."""

    stages: Stages

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        call = getattr(ufunc, method)
        if ufunc is np.matmul:
            call = self.stages.timed(PRODUCTS, call)
        return call(*(np.asarray(x) for x in inputs), **kwargs)


@contextlib.contextmanager
def watched(stages: Stages) -> Iterator[None]:
    """Time the functions of ``STAGES`` and the scores, and the products with learned weights."""
    trained = _training._as_numpy
    scored = _base.get_score

    def as_numpy(weights):
        timed = type("Timed", (TimedProducts,), {"stages": stages})
        return {
            part: [(w.view(timed), b) for w, b in layers]
            for part, layers in trained(weights).items()
        }

    with contextlib.ExitStack() as stack:
        for stage, home, name in STAGES:
            function = stages.timed(stage, getattr(home, name))
            stack.enter_context(mock.patch.object(home, name, function))
        score = lambda name: stages.timed("scores", scored(name))  # noqa: E731
        stack.enter_context(mock.patch.object(_base, "get_score", score))
        stack.enter_context(mock.patch.object(_training, "_as_numpy", as_numpy))
        yield


def training_products(function: Callable[[], Any]) -> float:
    """Return the seconds of matrix products in torch, in a run of their own: watching slows it."""
    from torch.utils._python_dispatch import TorchDispatchMode

    stages = Stages()

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func.overloadpacket.__name__ in TORCH_PRODUCTS:
                func = stages.timed(PRODUCTS, func)
            return func(*args, **(kwargs or {}))

    with Watch():
        function()
    return stages.seconds[PRODUCTS]


def summary(job: str, total: float, stages: Stages) -> dict:
    """Return the stages, largest first, and the share of time that nobody could do without."""
    spent = dict(stages.seconds.most_common())
    spent["the rest"] = total - sum(spent.values())
    needed = spent.get(BASE, 0.0) + spent.get(PRODUCTS, 0.0)
    return {"job": job, "seconds": total, "stages": spent, "outside": 1 - needed / total}


def measure() -> dict:
    """Take conformalize and predict_set apart, on top of a logistic regression."""
    data = make_synthetic(N_PREDICT, random_state=0)
    model = make_pipeline(one_hot_encoder(), LogisticRegression(max_iter=200))
    model.fit(data.X[:2000], data.y[:2000])
    clf = FaReGClassifier(
        FrozenEstimator(model), sensitive_features=list(data.sensitive), random_state=0
    )
    X_cal, y_cal = data.X[:N_FIT], data.y[:N_FIT]
    clf.conformalize(X_cal, y_cal)  # loads torch
    products = training_products(lambda: clf.conformalize(X_cal, y_cal))
    stages = Stages()
    model.predict_proba = stages.timed(BASE, model.predict_proba)
    with watched(stages):
        total, _ = seconds(lambda: clf.conformalize(X_cal, y_cal))
        stages.seconds["training"] -= products
        stages.seconds[PRODUCTS] += products
        fit = summary(f"conformalize on {N_FIT:,} rows", total, stages)
        stages.seconds.clear()
        total, _ = seconds(lambda: clf.predict_set(data.X))
        predict = summary(f"predict_set of {N_PREDICT:,} rows", total, stages)
    parts = (fit, predict)
    rows = [
        Row(
            f"FaReG, {part['job']}",
            part["seconds"],
            note=f"{part['outside']:.0%} outside the base model and matrix products",
        )
        for part in parts
    ]
    return {"rows": rows, "stages": list(parts)}
