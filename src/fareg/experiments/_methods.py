"""The rows of every comparison: how each method turns a problem into prediction sets."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from fareg._validation import BoolArray
from fareg.classifiers import (
    AFCPClassifier,
    CondCPClassifier,
    ExhaustiveConformalClassifier,
    FaReGClassifier,
    PartialConformalClassifier,
    PLCPClassifier,
    RectifiedConformalClassifier,
    SplitConformalClassifier,
)
from fareg.experiments._config import Method, Parameters
from fareg.experiments._problems import DATA, Bench
from fareg.experiments._references import SplitScores, size_matched_threshold
from fareg.paper import PublishedFaReGClassifier

MOST_DRAWS = 100  # draws of the sweep over T; a smaller T uses the first T of them


def apply_method(
    method: Method, bench: Bench, size_of: Callable[[Method], float]
) -> tuple[BoolArray, dict[str, float]]:
    """Return the sets of the test rows, shape (n_test, n_classes), and facts for further columns.

    ``size_of`` tells the mean size of another method's sets. Seconds are processor time.
    """
    if method.kind not in ("matched", "oracle"):
        return _fitted_sets(method, bench)
    start = time.process_time()
    split, facts = _split_scores(bench), {}
    if method.kind == "oracle":
        groups = bench.calibration.group, bench.test.group
        sets = split.oracle_sets(*groups, construction=method["construction"])
    else:  # the one threshold for everyone at which the mean size is that of another method
        threshold = size_matched_threshold(split.scores, size_of(method["like"]))
        sets = split.scores <= threshold
        facts["level"] = float((split.own <= threshold).sum() / (len(split.own) + 1))
    return sets, facts | _seconds(time.process_time() - start, 0.0)


def classifier(method: Method, bench: Bench) -> Any:
    """Return the unfitted classifier that a method stands for."""
    common = {"sensitive_features": bench.sensitive, "random_state": bench.seed}
    options: dict[str, Any] = {**common, **dict(method.parameters)}
    if method.kind in ("paper", "draws", "condcp+paper"):
        if method.kind == "condcp+paper":
            options["base"] = CondCPClassifier()
        published = DATA[bench.problem.data.kind].published
        return FaReGClassifier.paper(bench.estimator, data=published, **options)
    return CLASSIFIERS[method.kind](bench.estimator, **options)


def fitted(method: Method, bench: Bench) -> tuple[Any, float]:
    """Return the conformalized classifier and its seconds; fits are shared within a problem."""
    key = (method.kind, method.parameters)
    if key not in bench.fits:
        apart = bench.learning_rows() if method == OUT_OF_FOLD else {}
        start = time.process_time()
        model = classifier(method, bench)
        model.conformalize(bench.calibration.X, bench.calibration.y, **apart)
        bench.fits[key] = model, time.process_time() - start
    return bench.fits[key]


def _fitted_sets(method: Method, bench: Bench) -> tuple[BoolArray, dict[str, float]]:
    if method.kind == "draws":
        # Every T takes the first T of many draws, so the group is learned once for all of them.
        most = {**dict(method.parameters), "n_draws": MOST_DRAWS}
        model, seconds = fitted(replace(method, parameters=tuple(most.items())), bench)
        model = model.with_draws(method["n_draws"])
    else:
        model, seconds = fitted(method, bench)
    start = time.process_time()
    sets = model.predict_set(bench.test.X)
    predict_seconds = time.process_time() - start
    return sets, _selections(model, bench) | _seconds(seconds, predict_seconds)


def _seconds(conformalize: float, predict: float) -> dict[str, float]:
    return {"conformalize_seconds": conformalize, "predict_seconds": predict}


def _selections(model: Any, bench: Bench) -> dict[str, float]:
    """Say how often each of the two features that make the group was selected.

    AFCP selects for each test row. The published FaReG learns one group for all, and its two
    features are those that change most when the latent is perturbed; the default's are those that
    matter most to its disadvantage.
    """
    wanted = DATA[bench.problem.data.kind].target_features
    if isinstance(model, AFCPClassifier):
        names = [levels.name for levels in model.levels_]
        selected = model.selected_features(bench.test.X)[:, [names.index(name) for name in wanted]]
    elif isinstance(model, FaReGClassifier | PublishedFaReGClassifier):
        shares: Any = model.explain(bench.calibration.X)
        if isinstance(model, PublishedFaReGClassifier):
            shares = shares.ranking["latent"]
        shares = shares.sort_values(ascending=False, kind="stable")[:2]
        chosen = set(shares.index[shares > 0])
        selected = np.array([[name in chosen for name in wanted]])
    else:
        return {}
    return {
        "selects_first": float(selected[:, 0].mean()),
        "selects_second": float(selected[:, 1].mean()),
        "selects_both": float(selected.all(axis=1).mean()),
    }


def _split_scores(bench: Bench) -> SplitScores:
    if "scores" not in bench.fits:
        model, _ = fitted(MARGINAL, bench)
        rows = bench.calibration
        bench.fits["scores"] = SplitScores.of(model, rows.X, rows.y, bench.test.X)
    return bench.fits["scores"]


CLASSIFIERS: dict[str, Any] = {
    "marginal": SplitConformalClassifier,
    "exhaustive": ExhaustiveConformalClassifier,
    "partial": PartialConformalClassifier,
    "afcp": AFCPClassifier,
    "condcp": CondCPClassifier,
    "plcp": PLCPClassifier,
    "rcp": RectifiedConformalClassifier,
    "default": FaReGClassifier,
}

MARGINAL = Method("Marginal", "marginal")
LEVELS = Method("FaReG (levels)", "default")
OUT_OF_FOLD = Method("FaReG (levels, out of fold)", "default", (("learn_from", "train"),))


def comparison(steps: Parameters = (), *more: Method) -> list[Method]:
    """Return the methods of every comparison, with ``more`` after FaReG's own.

    ``steps`` shorten the training of the paper's.
    """
    paper = Method("FaReG (paper)", "paper", steps)
    return [
        MARGINAL,
        Method("Partial", "partial"),
        Method("AFCP", "afcp"),
        Method("AFCP1", "afcp", (("n_select", 1),)),
        Method("AFCP2", "afcp", (("n_select", 2),)),
        Method("CondCP", "condcp"),
        Method("PLCP", "plcp"),
        Method("RCP", "rcp"),
        paper,
        Method("CondCP + FaReG (paper)", "condcp+paper", steps),
        LEVELS,
        *more,
        Method("Marginal at the size of FaReG (paper)", "matched", (("like", paper),)),
        Method("Marginal at the size of FaReG (levels)", "matched", (("like", LEVELS),)),
        Method("Oracle union", "oracle", (("construction", "union"),)),
        Method("Oracle partition", "oracle", (("construction", "partition"),)),
    ]
