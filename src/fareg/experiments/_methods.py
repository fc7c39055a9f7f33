"""The methods of every comparison, and how each turns a problem into prediction sets."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import time
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field
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
from fareg.experiments._bench import CONFIDENCE, UNHASHED, Bench, fingerprint
from fareg.paper import DrawnGroups, PublishedFaReGClassifier, latent_importance

Parameters = tuple[tuple[str, Any], ...]
PROBE = 1e-3  # the paper's perturbation of a latent dimension
MOST_DRAWS = 100  # draws of the sweep over T; a smaller T uses the first T of them


@dataclass(frozen=True)
class Method:
    """A row of a comparison: its name, its kind and its parameters.

    The kind is a key of ``CLASSIFIERS``, "oracle", "matched", one of ``PUBLISHED`` or an imported
    class. The name is not hashed: a method with different names in two targets is computed once.
    The path of a Python file is not hashed either: its kind ends with a hash of the content.
    """

    name: str = field(metadata=UNHASHED)
    kind: str
    parameters: Parameters = ()
    file: str = field(default="", metadata=UNHASHED)

    def __getitem__(self, name: str) -> Any:
        return dict(self.parameters)[name]


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
LEVELS = Method("FaReG (levels)", "default")
OUT_OF_FOLD = Method("FaReG (levels, out of fold)", "default", (("learn_from", "train"),))
ORACLE = Method("Oracle partition", "oracle", (("construction", "partition"),))
AFCPS = [Method(f"AFCP{k}", "afcp", (("n_select", k),)) for k in (1, 2)]

# The methods of a benchmark on tables, by their names in its settings.
METHODS: dict[str, Method] = {
    "split": Method("Split", "marginal"),
    "matched": Method("Split at the size of FaReG", "matched", (("like", LEVELS),)),
    "partial": Method("Partial", "partial"),
    "exhaustive": Method("Exhaustive", "exhaustive"),
    "afcp": Method("AFCP", "afcp"),
    "condcp": Method("CondCP", "condcp"),
    "plcp": Method("PLCP", "plcp"),
    "rcp": Method("RCP", "rcp"),
    "levels": LEVELS,
    "oracle": Method("Oracle", "oracle", ORACLE.parameters),
}
SLOW_METHODS = {"paper": Method("FaReG (paper)", "paper")}  # only if named


def comparison(epochs: Parameters = (), *more: Method) -> list[Method]:
    """Return the methods of every comparison in the paper, with ``more`` after FaReG (levels).

    ``epochs`` shortens the training of FaReG (paper).
    """
    paper = Method("FaReG (paper)", "paper", epochs)
    partial, afcp, *others = (METHODS[k] for k in ("partial", "afcp", "condcp", "plcp", "rcp"))
    with_condcp = Method("CondCP + FaReG (paper)", "condcp+paper", epochs)
    union = Method("Oracle union", "oracle", (("construction", "union"),))
    found = [MARGINAL, partial, afcp, *AFCPS, *others, paper, with_condcp, LEVELS, *more]
    return [*found, size_matched(paper), size_matched(LEVELS), union, ORACLE]


def size_matched(like: Method) -> Method:
    return Method(f"Marginal at the size of {like.name}", "matched", (("like", like),))


def find_methods(names: Sequence[str], folder: Path) -> list[Method]:
    """Return methods by name, all of ``METHODS`` without names; ``folder`` holds Python files.

    ``module:Class`` and ``file.py:Class`` are imported now: a missing one is refused before any
    work is done, because its failure would be stored and stay after you install it.
    """
    known = METHODS | SLOW_METHODS
    found, by_name = [], {method.name: method for method in known.values()}
    for name in names or METHODS:
        if name not in known and ":" not in name:
            raise InvalidInputError(
                f"unknown method {name}; known are {', '.join(known)}, my_module:MyClassifier "
                "or my_file.py:MyClassifier"
            )
        method = known.get(name) or _imported(name, folder)
        if by_name.setdefault(method.name, method) != method:  # results are kept by name
            raise InvalidInputError(
                f"{name} has the name of another method, {method.name}; rename the class, or give "
                "it another title"
            )
        found.append(method)
    return found


def _imported(name: str, folder: Path) -> Method:
    module, _, attribute = name.rpartition(":")
    kind, file = name, ""
    if module.endswith(".py"):
        path = (folder / module).resolve()
        if not path.is_file():
            raise InvalidInputError(f"cannot import the method {name}: there is no file {path}")
        kind, file = f"{path.name}:{attribute} {fingerprint([path])}", str(path)
    try:
        cls = class_of(Method(attribute, kind, file=file))
    except (ImportError, AttributeError, SyntaxError, OSError) as error:
        raise InvalidInputError(f"cannot import the method {name}: {error}") from error
    return Method(getattr(cls, "title", attribute), kind, file=file)


def class_of(method: Method) -> Any:
    """Return the class of a method; oracle and size-matched sets use that of split sets."""
    if ":" not in method.kind:
        return CLASSIFIERS.get(method.kind, SplitConformalClassifier)
    module, _, name = method.kind.partition(" ")[0].rpartition(":")
    source = _module_of(method.file) if method.file else importlib.import_module(module)
    if not hasattr(source, name):
        raise AttributeError(f"{method.file or module} has no class {name}")
    return getattr(source, name)


@cache
def _module_of(path: str) -> ModuleType:
    """Run a Python file as a module of this process."""
    name = f"_fareg_{Path(path).stem}_{hashlib.sha256(path.encode()).hexdigest()[:8]}"
    spec: Any = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look for their module there
    spec.loader.exec_module(module)
    return module


# --- the sets of methods ------------------------------------------------------------------------


def sets_of(method: Method, bench: Bench, score: str) -> tuple[BoolArray, dict[str, float]]:
    """Return the sets of the test rows, shape (n_test, n_classes), and facts for further columns.

    Seconds are processor time of one core, without the trainings of the base model.
    """
    key = ("sets", method.kind, method.parameters, score)
    return bench.once(key, lambda: _sets_of(method, bench, score))


def _sets_of(method: Method, bench: Bench, score: str) -> tuple[BoolArray, dict[str, float]]:
    X = bench.X.iloc[bench.test]
    if method.kind == "oracle":
        sets = fitted(Method("", "oracle"), bench, score)[0].predict_set(X)
        if method["construction"] == "union":
            marginal, _ = sets_of(MARGINAL, bench, score)
            sets = marginal | (sets & bench.group[bench.test][:, None])
        return sets, {}
    if method.kind == "matched":  # one threshold for everyone, at the mean size of another method
        like, _ = sets_of(method["like"], bench, score)
        return size_matched_sets(bench, score, like.sum(axis=1).mean()), {}
    if method.kind == "draws":
        # Every T takes the first T of many draws, so the group is learned once for all T.
        parameters = {**dict(method.parameters), "n_draws": MOST_DRAWS}
        model, facts = fitted(Method("", "draws", tuple(parameters.items())), bench, score)
        model = model.with_draws(method["n_draws"])
    else:
        model, facts = fitted(method, bench, score)
    if method.kind == "condcp-replaces":
        model = without_marginal(model)
    sets, seconds = _timed(bench, lambda: np.asarray(model.predict_set(X)))
    return sets, {**facts, "predict_seconds": seconds, **_selections(model, bench)}


def fitted(method: Method, bench: Bench, score: str) -> tuple[Any, dict[str, float]]:
    """Return a fitted classifier and the seconds of its fit; fits are shared within a problem."""

    def fit() -> tuple[Any, dict[str, float]]:
        model, out_of_fold = classifier(method, bench, score), method == OUT_OF_FOLD
        _, seconds = _timed(bench, lambda: bench.fit(model, learn_out_of_fold=out_of_fold))
        facts = {"fit_seconds": seconds}
        if hasattr(model, "named_groups_"):
            facts["n_named"] = len(model.named_groups_)
        return model, facts

    return bench.once(("fit", method.kind, method.parameters, score), fit)


def _timed(bench: Bench, work: Callable[[], Any]) -> tuple[Any, float]:
    """Return the result of some work, and its processor time without that of the base model."""
    start = time.process_time() - bench.seconds["base"]
    result = work()
    return result, time.process_time() - bench.seconds["base"] - start


def classifier(method: Method, bench: Bench, score: str) -> Any:
    kind, estimator = method.kind, bench.estimator
    options: dict[str, Any] = {
        "confidence_level": CONFIDENCE,
        "conformity_score": score,
        "sensitive_features": bench.sensitive,
        "random_state": bench.seed(),
        **dict(method.parameters),
    }
    if kind == "oracle":  # the index numbers the rows
        options["sensitive_features"] = lambda X: pd.Series(bench.group[X.index], X.index)
        return ExhaustiveConformalClassifier(estimator, **options)
    if kind not in PUBLISHED:
        return class_of(method)(estimator, **options)
    if kind.startswith("condcp"):
        options["base"] = CondCPClassifier(randomized=options.pop("randomized", False))
    data = getattr(bench.problem, "data", None)  # None for published tables
    settings = {"data": data.published} if data else {}
    return FaReGClassifier.paper(estimator, **{**settings, **options})


def without_marginal(model: PublishedFaReGClassifier) -> PublishedFaReGClassifier:
    """Return a fitted published classifier with its base in place of the marginal set."""
    drawn, base = model.calibration_.parts
    groups_only = DrawnGroups(drawn.learner, drawn.sample, drawn.members, drawn.alpha)
    groups_only.quantiles[0] = -np.inf  # so that the marginal set is empty
    changed = copy(model)
    changed.calibration_ = Union((groups_only, base))
    return changed


def _selections(model: Any, bench: Bench) -> dict[str, float]:
    """Return how often each of the two features that make the group was selected.

    AFCP selects features for each test row. The published FaReG learns one group, and selects the
    two features whose reconstruction changes most when the latent is perturbed: as a share of the
    feature's range, or of its value (``ratio``), as in the paper. The default selects the two
    features that matter most to its disadvantage.
    """
    data = getattr(bench.problem, "data", None)
    if data is None:
        return {}
    wanted, people = list(data.target_features), bench.X.iloc[bench.calibration]

    def shares(name: str, selected: BoolArray) -> dict[str, float]:
        first, second = selected.mean(axis=0)
        both = selected.all(axis=1).mean()
        return {f"{name}_first": first, f"{name}_second": second, f"{name}_both": both}

    def two_largest(values: pd.Series) -> BoolArray:
        largest = values.sort_values(ascending=False, kind="stable")[:2]
        return np.array([[name in largest.index[largest > 0] for name in wanted]])

    if isinstance(model, AFCPClassifier):
        names = [levels.name for levels in model.levels_]
        chosen = model.selected_features(bench.X.iloc[bench.test])
        return shares("selects", chosen[:, [names.index(name) for name in wanted]])
    if isinstance(model, FaReGClassifier):
        return shares("selects", two_largest(model.explain(people)))
    if not isinstance(model, PublishedFaReGClassifier) or not model.learner_.found_:
        return {}
    found: dict[str, float] = {}
    for name, unit in (("selects", "range"), ("ratio", "value")):
        columns = canonical(people[bench.sensitive])
        changes = latent_importance(model.learner_, columns, size=PROBE, unit=unit)
        found |= shares(name, two_largest(changes))
    return found


def size_matched_sets(bench: Bench, score: str, mean_size: float) -> BoolArray:
    """Return split sets of the test rows with the threshold that gives them this mean size."""
    model, _ = fitted(MARGINAL, bench, score)
    X = bench.X.iloc[bench.test]
    scores: FloatArray = bench.once(("scores", score), lambda: model.conformity_scores(X))
    n_labels = round(mean_size * len(scores))
    return scores <= np.sort(scores, axis=None)[max(n_labels - 1, 0)]
