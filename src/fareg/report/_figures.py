"""Draw the report's curves as inline SVG; the style sheet chooses the colours."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from markupsafe import Markup, escape

from fareg._words import percent, size

Row = Mapping[str, Any]
MIN_SHOWN_ROWS = 20  # smaller groups and labels are never singled out
MAX_TICKS = 12
# A figure fits the width of a phone; these are its size and the edges of its plotting area.
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 440.0, 280.0, 50.0, 424.0, 16.0, 232.0


def tag(name: str, *children: Any, **attributes: Any) -> Markup:
    """Return one element; ``class_`` is class, and underscores become hyphens."""
    shown = Markup("")
    for key, value in attributes.items():
        text = f"{value:.6g}" if isinstance(value, float) else value
        shown += Markup(' {}="{}"').format(Markup(key.rstrip("_").replace("_", "-")), text)
    content = Markup("").join(escape(child) for child in children)
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(name), shown, content)


def ticks(low: float, high: float) -> list[float]:
    """Return round values in [low, high], about six at most.

    >>> ticks(0.71, 0.93)
    [0.75, 0.8, 0.85, 0.9]
    """
    steps = [m * 10.0**e for e in range(-4, 4) for m in (1, 2, 5)]
    step = next((s for s in steps if (high - low) / s < 6), steps[-1])
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 10) for i in range(first, last + 1)]


def strip_scale(rows: Sequence[Row]) -> float:
    """Return the coverage at which the strips of one table begin; they end at 100%."""
    known = [row for row in rows if row["coverage"] is not None]
    large = [row for row in known if row["n"] >= MIN_SHOWN_ROWS] or known
    return min(0.9, int(10 * min((row["low"] for row in large), default=0.0)) / 10)


def heat_cell(cell: Row, confidence_level: float) -> dict[str, Any]:
    """Return class and tint of a cell in the picture of a group; cells with few rows stay grey."""
    if cell["n"] < MIN_SHOWN_ROWS:
        return {"kind": "few", "tint": 0.0}
    side = "low" if cell["coverage"] < confidence_level else "high"
    largest = confidence_level if side == "low" else 1 - confidence_level
    strength = min(1.0, abs(cell["coverage"] - confidence_level) / max(min(largest, 0.2), 1e-9))
    member = " member" if cell["inside"] > 0.5 else ""
    return {"kind": f"{side}{member}", "tint": round(0.08 + 0.42 * strength, 3)}


def slab_figure(measure: str, rows: Sequence[Row], confidence_level: float) -> Markup:
    """Draw worst-slab coverage by mass, with the band that chance alone would give."""
    name = "slab-" + ("plus" if measure.endswith("+") else "linear")
    return _figure(
        name,
        f"{measure}: worst coverage of any slab",
        "smallest share of rows in a slab",
        [{**row, "at": row["delta"], "text": percent(row["delta"], 0)} for row in rows],
        {"held_out": "held out", "value": "in-sample"},
        confidence_level,
    )


def level_figure(
    name: str, title: str, rows: Sequence[Row], suffix: str = "", target: float | None = None
) -> Markup:
    """Draw a number by level of disadvantage, before and after, with intervals if known.

    With a target the numbers are shares, otherwise mean set sizes.
    """
    keys = {f"{moment}{suffix}": moment for moment in ("before", "after")}
    known = [{**r, "at": r["level"], "text": str(r["level"])} for r in rows if r["n"]]
    return _figure(name, title, "level of disadvantage", known, keys, target)


def _figure(
    name: str,
    title: str,
    below: str,
    rows: Sequence[Row],
    keys: Mapping[str, str],
    target: float | None,
) -> Markup:
    """Draw two curves over equally spaced places, with the target and the band if given."""
    write: Callable[[Any], str] = size if target is None else percent
    most = math.inf if target is None else 1.0
    drawn = [*keys, *(key + end for key in keys for end in ("_low", "_high")), "null_low"]
    if "null_low" in rows[0]:  # the interval of a held-out value is not drawn
        drawn = [*keys, "null_low", "null_high"]
    values = [row[key] for row in rows for key in drawn if row.get(key) is not None]
    values += [] if target is None else [target]
    margin = 0.05 * (max(values) - min(values)) or 0.05
    low, high = max(min(values) - margin, 0.0), min(max(values) + margin, most + 0.02)

    first, last = rows[0]["at"], rows[-1]["at"]

    def x(row: Row) -> float:
        return float(LEFT + 20 + (row["at"] - first) / (last - first or 1) * (RIGHT - LEFT - 40))

    def y(value: float) -> float:
        return BOTTOM + (value - low) / (high - low) * (TOP - BOTTOM)

    def across(value: float, kind: str) -> Markup:
        return tag("line", x1=LEFT, x2=RIGHT, y1=y(value), y2=y(value), class_=kind)

    parts = [_text((LEFT + RIGHT) / 2, BOTTOM + 42, below)]
    for value in ticks(low, min(high, most)):
        text = f"{value:.3g}" if target is None else percent(value, 0)
        parts += [across(value, "grid"), _text(LEFT - 8, y(value) + 4, text, "end")]
    step = -(-len(rows) // MAX_TICKS)
    parts += [_text(x(row), BOTTOM + 20, row["text"]) for row in rows[::step]]
    band = [(x(row), row) for row in rows if row.get("null_low") is not None]
    if len(band) > 1:
        edge = [(at, row["null_high"]) for at, row in band]
        edge += [(at, row["null_low"]) for at, row in band[::-1]]
        parts.append(tag("polygon", points=_points(edge, y), class_="band"))
    if target is not None:
        parts.append(across(target, "target"))
    for key, shift in zip(keys, (-3.0, 3.0), strict=True):
        kind = key.removesuffix("_size")
        known = [(x(row) + shift, row) for row in rows if row[key] is not None]
        points = _points([(at, row[key]) for at, row in known], y)
        parts.append(tag("polyline", points=points, class_=f"curve {kind}"))
        for at, row in known:
            if f"{key}_low" in drawn and f"{key}_low" in row:
                top, bottom = y(row[f"{key}_high"]), y(row[f"{key}_low"])
                bar = tag("line", x1=at, x2=at, y1=bottom, y2=top, class_=f"whisker {kind}")
                parts.append(bar)
            hint = tag("title", f"{write(row[key])} at {row['text']}")
            parts.append(curve_mark(kind, at, y(row[key]), hint))
    spoken = "; ".join(
        f"{row['text']}: " + ", ".join(f"{write(row[key])} {curve}" for key, curve in keys.items())
        for row in rows
    )
    return tag(
        "svg",
        tag("title", title, id=f"{name}-title"),
        tag("desc", f"{below}, {spoken}.", id=f"{name}-desc"),
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        role="img",
        class_="figure fits",
        viewBox=f"0 0 {WIDTH:g} {HEIGHT:g}",
        width=WIDTH,
        height=HEIGHT,
        aria_labelledby=f"{name}-title {name}-desc",
    )


def _points(places: Sequence[tuple[float, float]], y: Callable[[float], float]) -> str:
    return " ".join(f"{at:.1f},{y(value):.1f}" for at, value in places)


def _text(x: float, y: float, content: str, anchor: str = "middle") -> Markup:
    return tag("text", content, x=x, y=y, class_="tick", text_anchor=anchor)


def curve_mark(curve: str, x: float, y: float, *children: Markup) -> Markup:
    """Return the mark of a curve: a disc after and in-sample, a square before and held-out."""
    if curve in ("after", "value"):
        return tag("circle", *children, cx=x, cy=y, r=4.5, class_=f"point {curve}")
    return tag("rect", *children, x=x - 4, y=y - 4, width=8.0, height=8.0, class_=f"point {curve}")
