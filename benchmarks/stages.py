"""Where the time of FaReG goes: seconds by stage."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from measure import Row, seconds
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline

from fareg._encoding import gradient_boosting, one_hot_encoder
from fareg.calibration import LevelThresholds, Mondrian
from fareg.classifiers import ConformalClassifier, FaReGClassifier, _answers, _fareg
from fareg.datasets import make_synthetic
from fareg.groups import Disadvantage

BASE = "base model"
STAGES = [  # (stage, where a function lives, its name)
    ("checking the table", _answers, "read_rows"),
    ("reading the table", _answers, "select_columns"),
    ("hashing rows", ConformalClassifier, "_hashes"),
    ("hashing rows", _answers, "numbered_hashes"),
    ("learning disadvantage", _fareg, "learn_disadvantage"),
    ("finding groups", _fareg, "find_groups"),
    ("predicting disadvantage", Disadvantage, "predict"),
    ("calibration", LevelThresholds, "__post_init__"),
    ("calibration", Mondrian, "__post_init__"),
    ("names and description", _fareg, "verify_groups"),
    ("names and description", _fareg, "describe_groups"),
]
N_FIT, N_PREDICT = 100_000, 1_000_000
REPEATS = 3


class Stages:
    """Seconds in named functions, each without the named functions that it calls.

    Whatever the base model calls counts as the base model's.
    """

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._inner = [0.0]
        self._in_answers = False

    def timed(self, stage: str, function: Callable) -> Callable:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if self._in_answers:
                return function(*args, **kwargs)
            self._in_answers = stage == BASE
            self._inner.append(0.0)
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                elapsed = time.perf_counter() - start
                self._in_answers = False
                self.seconds[stage] += elapsed - self._inner.pop()
                self._inner[-1] += elapsed

        return wrapper


@contextlib.contextmanager
def watched(stages: Stages) -> Iterator[None]:
    """Time the functions of ``STAGES`` and the scores."""
    scored = _answers.get_score

    def timed_score(name: Any) -> Callable:
        return stages.timed("scores", scored(name))

    with contextlib.ExitStack() as stack:
        for stage, home, name in STAGES:
            function = stages.timed(stage, getattr(home, name))
            stack.enter_context(mock.patch.object(home, name, function))
        stack.enter_context(mock.patch.object(_answers, "get_score", timed_score))
        yield


def taken_apart(job: str, stages: Stages, function: Callable[[], Any]) -> dict:
    """Return the stages of a call, largest first, and the seconds outside of them."""
    function()  # the first call loads libraries
    runs = []
    for _ in range(REPEATS):
        stages.seconds = Counter()
        with watched(stages):
            total, _ = seconds(function)
        runs.append((total, stages.seconds))
    total, spent = min(runs, key=lambda run: run[0])
    spent["the rest"] = total - sum(spent.values())
    return {
        "job": job,
        "seconds": total,
        "stages": {stage: spent[stage] for stage, _ in spent.most_common() if spent[stage]},
        "outside": 1 - spent[BASE] / total,
    }


def measure() -> dict:
    """Take fit and predict_set apart, with the default base model and with a linear one."""
    stages = Stages()
    data = make_synthetic(N_PREDICT, random_state=0)
    X, y = data.X[:N_FIT], data.y[:N_FIT]

    class BaseModel(Pipeline):
        fit = stages.timed(BASE, Pipeline.fit)
        predict_proba = stages.timed(BASE, Pipeline.predict_proba)

    def classifier(model: Any) -> FaReGClassifier:
        return FaReGClassifier(model, sensitive_features=list(data.sensitive), random_state=0)

    boosted = classifier(BaseModel(gradient_boosting(random_state=0).steps))
    linear = BaseModel([("code", one_hot_encoder()), ("model", LogisticRegression(max_iter=200))])
    clf = classifier(FrozenEstimator(linear.fit(X[:2000], y[:2000])))
    heavy, light = "gradient boosting", "logistic regression"
    jobs: dict[str, Callable[[], Any]] = {
        f"fit on {N_FIT:,} rows, {heavy}": lambda: boosted.fit(X, y),
        f"predict_set of {N_FIT:,} rows, {heavy}": lambda: boosted.predict_set(X),
        f"conformalize on {N_FIT:,} rows, {light}": lambda: clf.conformalize(X, y),
        f"predict_set of {N_PREDICT:,} rows, {light}": lambda: clf.predict_set(data.X),
    }
    parts = [taken_apart(job, stages, function) for job, function in jobs.items()]
    rows = [
        Row(
            f"FaReG, {part['job']}",
            part["seconds"],
            note=f"{part['outside']:.0%} outside the base model",
        )
        for part in parts
    ]
    return {"rows": rows, "stages": parts}
