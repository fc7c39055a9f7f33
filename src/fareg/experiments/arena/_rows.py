"""The rows of a benchmark: how each method turns a contest into prediction sets."""

from __future__ import annotations

import importlib
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from fareg._validation import BoolArray, InvalidInputError
from fareg.experiments._cells import Cell
from fareg.experiments._config import CONFIDENCE, Method
from fareg.experiments._methods import CLASSIFIERS, LEVELS
from fareg.experiments._references import SplitScores, size_matched_threshold
from fareg.experiments._store import Store
from fareg.experiments.arena._contests import Arena, Contest, RememberedModel, enter
from fareg.experiments.arena._measures import fairness, measure
from fareg.experiments.arena._peers import PEERS
from fareg.metrics import is_covered

SPLIT = Method("Split", "marginal")
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
    "oracle": Method("Oracle", "oracle"),
    **{name: Method(peer.title, name) for name, peer in PEERS.items()},
}


def find_methods(names: Sequence[str]) -> list[Method]:
    """Return methods by name, or all of fareg's without names.

    Other packages and ``module:Class`` are imported: what is not there is refused before any work
    is done, as a failure would be stored and stay after it was installed.
    """
    if not names:
        return [method for name, method in METHODS.items() if name not in PEERS]
    found = []
    for name in names:
        if ":" in name:
            imported(name)
            found.append(Method(name.partition(":")[2], name))
        elif name in METHODS:
            if name in PEERS:
                PEERS[name].package()
            found.append(METHODS[name])
        else:
            raise InvalidInputError(
                f"unknown method {name}; known are {', '.join(METHODS)}, or my_module:MyClassifier"
            )
    named = {method.name: method for method in METHODS.values()}
    for method in found:
        if named.setdefault(method.name, method) != method:  # results are told apart by the name
            raise InvalidInputError(
                f"{method.kind} has the name of another method, {method.name}; rename the class"
            )
    return found


def imported(path: str) -> Any:
    """Return the class that ``module:Class`` names."""
    module, _, name = path.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InvalidInputError(f"cannot import the method {path}: {error}") from error


def makes_sense(method: Method, contest: Contest, score: str) -> bool:
    """Tell whether a method can enter: an oracle needs a known group, another package the score."""
    if method.kind == "oracle":
        return contest.labels == "noise"
    return method.kind not in PEERS or score in PEERS[method.kind].scores


@dataclass(frozen=True)
class ArenaCell(Cell):
    """One method with one score in one contest: one row of measures."""

    problem: Contest
    score: str
    method: Method

    @property
    def cost(self) -> float:
        return 4.0 if self.method.kind == "condcp" else 1.0

    def prepare(self, store: Store) -> Arena:
        """Draw the rows of the contest."""
        return enter(self.problem, store)

    def compute(self, bench: Arena) -> pd.DataFrame:
        """Fit, predict and measure; a method that fails leaves a row with its error."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                row = self._measured(bench)
        except MemoryError:  # of this machine today, not of the method
            raise
        except Exception as error:  # a failure is a result; the others go on
            text = " ".join(f"{type(error).__name__}: {error}".split())
            row = {"error": text[:300]}
        return pd.DataFrame([{"error": "", **row}])

    def _measured(self, bench: Arena) -> dict[str, Any]:
        sets, facts = self._sets(bench)
        row = {**measure(sets, bench.test), **facts}
        # The reference is split sets of the same mean size, with one threshold for everyone.
        scores = self._split(bench).scores
        threshold = size_matched_threshold(scores, row["mean_size"])
        same_size = is_covered(bench.test.y, scores <= threshold, classes=range(sets.shape[1]))
        matched = fairness(same_size, bench.test)
        return {**row, **{f"matched_{name}": value for name, value in matched.items()}}

    def _sets(self, bench: Arena) -> tuple[BoolArray, dict[str, float]]:
        if self.method.kind == "matched":
            like = replace(self, method=self.method["like"]).result(bench)
            if like["error"].iloc[0]:
                raise InvalidInputError(f"{self.method['like'].name} failed")
            scores = self._split(bench).scores
            sets = scores <= size_matched_threshold(scores, float(like["mean_size"].iloc[0]))
        elif self.method.kind == "oracle":  # the group with noise is calibrated by itself
            inside = bench.group[bench.calibration]
            sets = self._split(bench).oracle_sets(inside, bench.test.group)
        else:
            return self._fitted_sets(bench)
        return sets, {}  # these sets follow from the scores of others, so no time is told

    def _fitted_sets(self, bench: Arena) -> tuple[BoolArray, dict[str, float]]:
        """Return the sets of a classifier, its seconds of one core, and the groups it named."""
        model = self._classifier(bench)
        trainings = bench.trainings
        trainings.charged = trainings.spent = 0.0
        start = time.process_time()
        bench.fit(model)
        fitted = time.process_time()
        sets = np.asarray(model.predict_set(bench.test.X))
        facts = {
            "fit_seconds": fitted - start - trainings.spent,
            "predict_seconds": time.process_time() - fitted,
            "training_seconds": trainings.charged,
        }
        if hasattr(model, "named_groups_"):
            facts["n_named"] = len(model.named_groups_)
        return sets, facts

    def _classifier(self, bench: Arena) -> Any:
        kind = self.method.kind
        make = imported(kind) if ":" in kind else CLASSIFIERS.get(kind) or PEERS[kind]
        return make(
            RememberedModel(bench.trainings),
            confidence_level=CONFIDENCE,
            conformity_score=self.score,
            sensitive_features=list(bench.contest.table.sensitive),
            random_state=bench.seed,
            **dict(self.method.parameters),
        )

    def _split(self, bench: Arena) -> SplitScores:
        """Return the scores of the split conformal classifier."""
        key = ("split", self.score)
        if key not in bench.fits:
            model = bench.fit(replace(self, method=SPLIT)._classifier(bench))
            X, y = bench.X.iloc[bench.calibration], bench.y[bench.calibration]
            bench.fits[key] = SplitScores.of(model, X, y, bench.test.X)
        return bench.fits[key]
