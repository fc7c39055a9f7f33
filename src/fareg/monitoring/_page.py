"""Show the state of a watch as one HTML page: a table, and coverage over time by stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import numpy as np

from fareg import _words
from fareg.monitoring._bets import interval_at_all_times

WIDTH, HEIGHT = 720, 130
WINDOW = 8  # points over which the curve averages


def curve(points: Sequence[Sequence[Any]]) -> list[tuple[int, float]]:
    """Return (row, coverage of the latest rows) from the (row, rows, misses) of a stream."""
    pairs = []
    for i, (row, n, missed) in enumerate(points):
        _, n_before, missed_before = points[i - WINDOW] if i >= WINDOW else (0, 0, 0)
        pairs.append((int(row), 1 - (missed - missed_before) / (n - n_before)))
    return pairs


def bands(points: Sequence[Sequence[Any]], begins: Sequence[Sequence[int]], error: float) -> Any:
    """Return the (row, low, high) of every interval, a list for each estimate."""
    intervals = []
    for i, (n, missed) in enumerate(begins):
        end = begins[i + 1][0] if i + 1 < len(begins) else np.inf
        part = np.array([p for p in points if n < p[1] <= end], dtype=np.int64).reshape(-1, 3)
        ends = interval_at_all_times(part[:, 1] - n, part[:, 2] - missed, error)
        intervals.append(np.column_stack([part[:, 0], ends]).tolist())
    return intervals


def render(facts: Mapping[str, Any]) -> str:
    """Return the page for the dict that ``CoverageMonitor.to_dict()`` returns."""
    # imported here, because watching must not load the template engine
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    filters = ("percent", "count", "group_name")
    environment.filters.update({name: getattr(_words, name) for name in filters})
    source = files("fareg.monitoring").joinpath("watch.html").read_text(encoding="utf-8")
    last = max(1, facts["rows"])

    def x(row: float) -> float:
        return round(50 + (WIDTH - 60) * row / last, 1)

    def y(coverage: float) -> float:
        low = facts["lowest"]
        return round(10 + (HEIGHT - 30) * (1 - max(0.0, coverage - low) / (1 - low)), 1)

    def line(pairs: Sequence[tuple[float, float]]) -> str:
        return " ".join(f"{x(row)},{y(coverage)}" for row, coverage in pairs)

    def area(ends: Sequence[tuple[float, float, float]]) -> str:
        highs = [(row, high) for row, _, high in ends]
        return line([*((row, low) for row, low, _ in ends), *highs[::-1]])

    template = environment.from_string(source)
    return template.render(s=facts, x=x, y=y, line=line, area=area, width=WIDTH, height=HEIGHT)
