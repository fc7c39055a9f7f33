"""The rows of every comparison: how each method turns a problem into prediction sets."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import time
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd

from fareg._columns import canonical
from fareg._validation import BoolArray, FloatArray, InvalidInputError
from fareg.calibration import Union
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
from fareg.experiments._bench import Bench
from fareg.experiments._measures import once
from fareg.experiments._peers import PEERS
from fareg.experiments._settings import CONFIDENCE, Method, Parameters, fingerprint
from fareg.paper import DrawnGroups, PublishedFaReGClassifier, latent_importance

PROBE = 1e-3  # the paper's perturbation of a latent dimension
MOST_DRAWS = 100  # draws of the sweep over T; a smaller T uses the first T of them
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
PUBLISHED = ("paper", "draws", "condcp+paper", "condcp-replaces")

MARGINAL = Method("Marginal", "marginal")
SPLIT = Method("Split", "marginal")
LEVELS = Method("FaReG (levels)", "default")
OUT_OF_FOLD = Method("FaReG (levels, out of fold)", "default", (("learn_from", "train"),))
ORACLE = Method("Oracle partition", "oracle", (("construction", "partition"),))

AFCPS = [Method(f"AFCP{k}", "afcp", (("n_select", k),)) for k in (1, 2)]

# What a benchmark on tables compares, by the name in its settings.
METHODS: dict[str, Method] = {
    "split": SPLIT,
    "matched": Method("Split at the size of FaReG", "matched", (("like", LEVELS),)),
    "partial": Method("Partial", "partial"),
    "exhaustive": Method("Exhaustive", "exhaustive"),
    "afcp": Method("AFCP", "afcp"),
    "condcp": Method("CondCP", "condcp"),
    "plcp": Method("PLCP", "plcp"),
    "rcp": Method("RCP", "rcp"),
    "levels": LEVELS,
    "oracle": Method("Oracle", "oracle", (("construction", "partition"),)),
    **{name: Method(peer.title, name) for name, peer in PEERS.items()},
}


def comparison(epochs: Parameters = (), *more: Method) -> list[Method]:
    """Return the methods of every comparison in the paper, with ``more`` after FaReG's own.

    ``epochs`` shorten the training of the paper's.
    """
    paper = Method("FaReG (paper)", "paper", epochs)
    partial, afcp, condcp, plcp, rcp = (
        METHODS[name] for name in ("partial", "afcp", "condcp", "plcp", "rcp")
    )
    with_condcp = Method("CondCP + FaReG (paper)", "condcp+paper", epochs)
    oracle_union = Method("Oracle union", "oracle", (("construction", "union"),))
    found = [MARGINAL, partial, afcp, *AFCPS, condcp, plcp, rcp, paper, with_condcp, LEVELS, *more]
    return [*found, size_matched(paper), size_matched(LEVELS), oracle_union, ORACLE]


def size_matched(like: Method) -> Method:
    """Return the marginal sets of the size of another method."""
    return Method(f"Marginal at the size of {like.name}", "matched", (("like", like),))


def find_methods(names: Sequence[str], folder: Path) -> list[Method]:
    """Return methods by name, or all of fareg's without names; files are looked for in ``folder``.

    Other packages, ``module:Class`` and ``file.py:Class`` are imported: what is not there is
    refused before any work is done, as a failure would be stored and stay after it was installed.
    """
    if not names:
        return [method for name, method in METHODS.items() if name not in PEERS]
    found, named = [], {method.name: method for method in METHODS.values()}
    for name in names:
        if name not in METHODS and ":" not in name:
            raise InvalidInputError(
                f"unknown method {name}; known are {', '.join(METHODS)}, my_module:MyClassifier "
                "or my_file.py:MyClassifier"
            )
        method = METHODS.get(name) or from_elsewhere(name, folder)
        if method.kind in PEERS:
            PEERS[method.kind].package()
        if named.setdefault(method.name, method) != method:  # results are told apart by the name
            raise InvalidInputError(
                f"{name} has the name of another method, {method.name}; rename the class, or give "
                "it a title of its own"
            )
        found.append(method)
    return found


def from_elsewhere(name: str, folder: Path) -> Method:
    """Return the method ``module:Class``, or ``file.py:Class`` with a path from ``folder``."""
    place, _, attribute = name.rpartition(":")
    method = Method(attribute, name)
    if place.endswith(".py"):
        path = (folder / place).resolve()
        if not path.is_file():
            raise InvalidInputError(f"cannot import the method {name}: {path} is not there")
        kind = f"{path.name}:{attribute} {fingerprint([path])}"
        method = Method(attribute, kind, file=str(path))
    return replace(method, name=getattr(class_of(method), "title", attribute))


def class_of(method: Method) -> Any:
    """Return the class of a method that is not one of fareg's."""
    if method.kind in PEERS:
        return PEERS[method.kind]
    module, _, name = method.kind.partition(" ")[0].rpartition(":")
    try:
        source = _module_of(method.file) if method.file else importlib.import_module(module)
        return getattr(source, name)
    except (ImportError, AttributeError, SyntaxError, OSError) as error:
        text = f"cannot import the method {method.file or module}:{name}: {error}"
        raise InvalidInputError(text) from error


@cache
def _module_of(path: str) -> ModuleType:
    """Run a Python file as a module that only this process knows."""
    name = f"_fareg_{Path(path).stem}_{hashlib.sha256(path.encode()).hexdigest()[:8]}"
    spec: Any = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look for their module there
    spec.loader.exec_module(module)
    return module


def apply_method(
    method: Method, bench: Bench, score: str, size_of: Callable[[Method], float]
) -> tuple[BoolArray, dict[str, float]]:
    """Return the sets of the test rows, shape (n_test, n_classes), and facts for further columns.

    ``size_of`` tells the mean size of another method's sets. Seconds are processor time of one
    core, without the trainings of the base model.
    """
    X = bench.X.iloc[bench.test]
    if method.kind == "oracle":
        sets = fitted(Method("", "oracle"), bench, score)[0].predict_set(X)
        if method["construction"] == "union":
            marginal = fitted(SPLIT, bench, score)[0].predict_set(X)
            sets = marginal | (sets & bench.group[bench.test][:, None])
        return sets, {}
    if method.kind == "matched":  # one threshold for everyone, at the mean size of another method
        return size_matched_sets(bench, score, size_of(method["like"])), {}
    if method.kind == "draws":
        # Every T takes the first T of many draws, so the group is learned once for all of them.
        most = method.with_parameters(n_draws=MOST_DRAWS)
        model, facts = fitted(most, bench, score)
        model = model.with_draws(method["n_draws"])
    else:
        model, facts = fitted(method, bench, score)
    if method.kind == "condcp-replaces":
        model = without_marginal(model)
    sets, seconds = _timed(bench, lambda: np.asarray(model.predict_set(X)))
    return sets, {**facts, "predict_seconds": seconds, **_selections(model, bench)}


class DrawsAlone(DrawnGroups):
    """The union over random groups without the marginal set."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.quantiles[0] = -np.inf


def without_marginal(model: PublishedFaReGClassifier) -> PublishedFaReGClassifier:
    """Return a fitted published classifier whose base takes the place of the marginal set."""
    drawn, base = model.calibration_.parts
    alone = DrawsAlone(drawn.learner, drawn.sample, drawn.members, drawn.alpha)
    other = copy(model)
    other.calibration_ = Union((alone, base))
    return other


def fitted(method: Method, bench: Bench, score: str) -> tuple[Any, dict[str, float]]:
    """Return a fitted classifier, with the seconds it took; fits are shared within a problem."""

    def fit() -> tuple[Any, dict[str, float]]:
        model, trainings = classifier(method, bench, score), bench.trainings
        trainings.charged = bench.ready_seconds
        own = method == OUT_OF_FOLD
        _, seconds = _timed(bench, lambda: bench.fit(model, learn_out_of_fold=own))
        facts = {"fit_seconds": seconds, "training_seconds": trainings.charged}
        if hasattr(model, "named_groups_"):
            facts["n_named"] = len(model.named_groups_)
        return model, facts

    return once(bench, ("fit", method.kind, method.parameters, score), fit)


def _timed(bench: Bench, work: Callable[[], Any]) -> tuple[Any, float]:
    """Return what work returns, and its processor time without that of the remembered model."""
    start, spent = time.process_time(), bench.trainings.spent
    done = work()
    return done, time.process_time() - start - (bench.trainings.spent - spent)


def classifier(method: Method, bench: Bench, score: str) -> Any:
    """Return the unfitted classifier that a method stands for."""
    kind = method.kind
    options: dict[str, Any] = {
        "confidence_level": CONFIDENCE,
        "conformity_score": score,
        "sensitive_features": bench.sensitive,
        "random_state": bench.seed,
        **dict(method.parameters),
    }
    if kind == "oracle":  # rows are known by their index
        options["sensitive_features"] = lambda X: pd.Series(bench.group[X.index], X.index)
        return ExhaustiveConformalClassifier(bench.estimator, **options)
    if kind not in PUBLISHED:
        make = CLASSIFIERS.get(kind) or class_of(method)
        return make(bench.estimator, **options)
    if kind.startswith("condcp"):
        options["base"] = CondCPClassifier(randomized=options.pop("randomized", False))
    options.setdefault("data", bench.problem.data.published)
    return FaReGClassifier.paper(bench.estimator, **options)


def _selections(model: Any, bench: Bench) -> dict[str, float]:
    """Say how often each of the two features that make the group was selected.

    AFCP selects for each test row. The published FaReG learns one group for all, and its two
    features are those whose reconstruction changes most when the latent is perturbed, as a share of
    the feature's range, or of its value (``ratio``), as the paper has it; the default's are those
    that matter most to its disadvantage.
    """
    data = getattr(bench.problem, "data", None)
    if data is None:
        return {}
    wanted = list(data.target_features)
    people = bench.X.iloc[bench.calibration]
    if isinstance(model, AFCPClassifier):
        names = [levels.name for levels in model.levels_]
        chosen = model.selected_features(bench.X.iloc[bench.test])
        return _shares("selects", chosen[:, [names.index(name) for name in wanted]])
    if isinstance(model, FaReGClassifier):
        return _shares("selects", _two_largest(model.explain(people), wanted))
    if not isinstance(model, PublishedFaReGClassifier) or not model.learner_.found_:
        return {}
    found: dict[str, float] = {}
    for name, unit in (("selects", "range"), ("ratio", "value")):
        people = canonical(people[bench.sensitive])
        changes = latent_importance(model.learner_, people, size=PROBE, unit=unit)
        found |= _shares(name, _two_largest(changes, wanted))
    return found


def _two_largest(shares: pd.Series, wanted: list[str]) -> BoolArray:
    """Tell which of the wanted features are among the two with the largest positive shares."""
    largest = shares.sort_values(ascending=False, kind="stable")[:2]
    return np.array([[name in largest.index[largest > 0] for name in wanted]])


def _shares(name: str, selected: BoolArray) -> dict[str, float]:
    first, second = selected.mean(axis=0)
    both = selected.all(axis=1).mean()
    return {f"{name}_first": first, f"{name}_second": second, f"{name}_both": both}


def size_matched_threshold(scores: FloatArray, mean_size: float) -> float:
    """Return the one threshold at which sets of shape (n, n_classes) have a given mean size.

    >>> scores = np.array([[0.1, 0.5], [0.3, 0.9]])
    >>> (scores <= size_matched_threshold(scores, 1.5)).tolist()
    [[True, True], [True, False]]
    """
    n_labels = round(mean_size * len(scores))
    return float(np.sort(scores, axis=None)[max(n_labels - 1, 0)])


def size_matched_sets(bench: Bench, score: str, mean_size: float) -> BoolArray:
    """Return split conformal sets of the test rows with the threshold that gives a mean size."""

    def ask() -> FloatArray:
        model, _ = fitted(SPLIT, bench, score)
        scores: FloatArray = model.conformity_scores(bench.X.iloc[bench.test])
        return scores

    scores = once(bench, ("split", score), ask)
    return scores <= size_matched_threshold(scores, mean_size)
