"""Cells, the smallest pieces of work that are stored.

A cell is a pure function of its configuration: whoever computes it, wherever and whenever, gets
the same numbers (all but those named ``*_seconds``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier

from fareg.experiments._config import CONFIDENCE, Method, MetricConfig, content_hash
from fareg.experiments._figures import draw_image
from fareg.experiments._methods import MARGINAL, apply_method, fitted
from fareg.experiments._problems import MEASURE, Bench, prepare
from fareg.experiments._store import Store
from fareg.metrics import excess_risk, is_covered, worst_slab_coverage

ERT_ROUNDS = 20  # rounds of boosting: few, because there are some hundred rows of few features
SEARCHES = ("random", "optimised")
PICTURE_STEPS = (0.0, 1.0, 2.0)


@dataclass(frozen=True)
class Cell:
    """A piece of work on one problem."""

    problem: Any

    @property
    def key(self) -> str:
        """The name of the result: a hash of everything that it depends on."""
        return content_hash(self)

    @property
    def cost(self) -> float:
        """Roughly how many seconds it takes, for the progress bar."""
        return 1.0

    def prepare(self, store: Store) -> Any:
        """Return what the cells of the problem share."""
        return prepare(self.problem, store)

    def compute(self, bench: Any) -> pd.DataFrame:
        """Return the rows of the cell."""
        raise NotImplementedError

    def result(self, bench: Any) -> pd.DataFrame:
        """Return the stored rows, or compute and store them."""
        return bench.store.once(self.key, lambda: self.compute(bench))


@dataclass(frozen=True)
class MethodCell(Cell):
    """One method on one problem: one row of metrics."""

    method: Method
    metrics: MetricConfig

    @property
    def cost(self) -> float:
        return 6.0 if self.method.kind in ("paper", "condcp+paper", "draws") else 1.0

    def compute(self, bench: Bench) -> pd.DataFrame:
        def size_of(method: Method) -> float:
            rows = replace(self, method=method).result(bench)
            return float(rows["size"].iloc[0])

        sets, facts = apply_method(self.method, bench, size_of)
        row = {**measure(sets, bench, self.metrics), **facts}
        return pd.DataFrame([{**row, "training_seconds": bench.training_seconds}])


def measure(sets: Any, bench: Bench, config: MetricConfig) -> dict[str, float]:
    """Return every metric of prediction sets on the test rows."""
    test = bench.test
    covered = is_covered(test.y, sets, classes=range(sets.shape[1]))
    seed = int(bench.problem.rng(MEASURE).integers(2**31))
    search: dict[str, Any] = {
        "delta": config.delta,
        "n_directions": config.n_directions,
        "random_state": seed,
    }
    line = worst_slab_coverage(bench.codes, covered, **search)
    curve = worst_slab_coverage(
        bench.codes, covered, kind="quadratic", n_permutations=config.n_permutations, **search
    )
    held_out = worst_slab_coverage(bench.codes, covered, kind="quadratic", test_size=0.5, **search)
    return {
        "group_coverage": _mean(covered[test.group]),
        "rest_coverage": _mean(covered[~test.group]),
        "coverage": _mean(covered),
        "size": float(sets.sum(axis=1).mean()),
        "wsc": line.value,
        "wsc_plus": curve.value,
        "wsc_plus_held_out": np.nan if held_out.test_value is None else held_out.test_value,
        **{
            f"wsc_plus_null_{end}": getattr(curve.null, end, np.nan)
            for end in ("low", "median", "high")
        },
        "ert": excess_risk(
            bench.codes,
            covered,
            confidence_level=CONFIDENCE,
            estimator=HistGradientBoostingClassifier(max_iter=ERT_ROUNDS, random_state=seed),
            random_state=seed,
        ),
    }


def _mean(values: Any) -> float:
    return float(values.mean()) if len(values) else np.nan


@dataclass(frozen=True)
class SlabCell(Cell):
    """WSC and WSC+ of marginal sets on the first ``n_features`` features, for several deltas.

    Each is searched among random directions, as published, and by descent; once in sample, and
    once on one half of the test rows and evaluated on the other.
    """

    n_features: int
    deltas: tuple[float, ...]
    n_directions: int

    def compute(self, bench: Bench) -> pd.DataFrame:
        model, _ = fitted(MARGINAL, bench)
        sets = model.predict_set(bench.test.X)
        covered = is_covered(bench.test.y, sets, classes=model.classes_)
        X = bench.test.X.iloc[:, : self.n_features]
        seed = int(bench.problem.rng(MEASURE).integers(2**31))
        rows = []
        for kind, way, delta in product(("linear", "quadratic"), SEARCHES, self.deltas):
            search = partial(
                worst_slab_coverage,
                X,
                covered,
                delta=delta,
                kind=kind,
                search=way,
                n_directions=self.n_directions,
                random_state=seed,
            )
            slab = search()
            found = {"kind": kind, "search": way, "delta": delta, "value": slab.value}
            held_out = search(test_size=0.5).test_value
            rows.append({**found, "held_out": held_out, "values": slab.values.tolist()})
        return pd.DataFrame(rows)


@dataclass(frozen=True)
class PictureCell(Cell):
    """The membership that the published method learned: by level of two features, and drawn."""

    method: Method
    cost = 6.0

    def compute(self, bench: Bench) -> pd.DataFrame:
        model, _ = fitted(self.method, bench)
        features = ["Color", "Gender"]
        membership = model.predict_group(bench.test.X)
        table = bench.test.X[features].assign(membership=membership)
        rows = table.groupby(features, as_index=False)["membership"].mean()
        images = {"svg": b"", "png": b""}
        if model.learner_.found_:
            figure = model.plot_groups(
                bench.calibration.X, features=tuple(features), steps=PICTURE_STEPS
            )
            for kind in images:
                images[kind] = draw_image(figure, kind)
        return rows.assign(**images)
