"""The report's figures as inline SVG: numbers in, markup out, colours left to the style sheet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from fareg._words import count, percent, size
from fareg.report._svg import Scale, linear, picture, tag, ticks

Row = Mapping[str, Any]
STRIP_WIDTH, STRIP_HEIGHT = 168.0, 22.0
MIN_SHOWN_ROWS = 20  # smaller groups and labels are not picked out, in any table or figure
MAX_BARS = 12
# Figures with curves have this size, and these edges of the field in which they are drawn.
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 440.0, 280.0, 50.0, 424.0, 16.0, 232.0


def strip_scale(rows: Sequence[Row]) -> tuple[float, float]:
    """Return the range of coverage that the strips of one table share."""
    known = [row for row in rows if row["coverage"] is not None]
    large = [row for row in known if row["n"] >= MIN_SHOWN_ROWS] or known
    smallest = min((row["low"] for row in large), default=0.0)
    return max(0.0, int(10 * smallest) / 10), 1.0


def strip_axis(scale: tuple[float, float], confidence_level: float) -> Markup:
    """Draw the ends of a table's strips, and where the target lies."""
    x = linear(*scale, 8.0, STRIP_WIDTH - 8)
    parts = [
        _text(2.0, 15.0, percent(scale[0], 0), "tick", "start"),
        _text(STRIP_WIDTH - 2, 15.0, "100%", "tick", "end"),
    ]
    if 42 < x(confidence_level) < STRIP_WIDTH - 46:  # the mark keeps clear of both texts
        parts.append(_target(x(confidence_level)))
    hidden = tag("span", "95% interval beside the target", class_="visually-hidden")
    return hidden + _strip(parts)


def interval_strip(row: Row, scale: tuple[float, float], confidence_level: float) -> Markup:
    """Draw coverage with its interval next to the target: filled if all of it lies below."""
    x = linear(*scale, 8.0, STRIP_WIDTH - 8)
    y = STRIP_HEIGHT / 2
    parts = [_target(x(confidence_level))]
    if row["coverage"] is not None:
        left, right = x(max(row["low"], scale[0])), x(row["high"])
        kind = "mark below" if row["high"] < confidence_level else "mark"
        parts.append(tag("line", x1=left, x2=right, y1=y, y2=y, class_=f"whisker {kind}"))
        if row["coverage"] >= scale[0]:
            parts.append(tag("circle", cx=x(row["coverage"]), cy=y, r=4.5, class_=f"dot {kind}"))
        else:
            parts.append(tag("path", d=f"M8 {y - 5}L2 {y}L8 {y + 5}Z", class_=f"dot {kind}"))
    return _strip(parts)


def change_strip(
    before: Row, after: Row, scale: tuple[float, float], confidence_level: float
) -> Markup:
    """Draw coverage before (hollow) and after (filled) next to the target."""
    x = linear(*scale, 8.0, STRIP_WIDTH - 8)
    y = STRIP_HEIGHT / 2
    parts = [_target(x(confidence_level))]
    values = [before["coverage"], after["coverage"]]
    if None not in values:
        start, stop = (x(max(value, scale[0])) for value in values)
        parts += [
            tag("line", x1=start, x2=stop, y1=y, y2=y, class_="whisker mark"),
            tag(
                "circle", cx=start, cy=y, r=4.5, class_=f"{_side(before, confidence_level)} hollow"
            ),
            tag("circle", cx=stop, cy=y, r=4.5, class_=_side(after, confidence_level)),
        ]
    return _strip(parts)


def _side(row: Row, confidence_level: float) -> str:
    return "dot mark below" if row["coverage"] < confidence_level else "dot mark"


def _target(x: float) -> Markup:
    return tag("line", x1=x, x2=x, y1=1.0, y2=STRIP_HEIGHT - 1, class_="target")


def _strip(parts: list[Markup]) -> Markup:
    return tag(
        "svg",
        *parts,
        class_="strip",
        aria_hidden="true",
        viewBox=f"0 0 {STRIP_WIDTH:g} {STRIP_HEIGHT:g}",
        width=STRIP_WIDTH,
        height=STRIP_HEIGHT,
    )


def size_figure(set_sizes: Sequence[Row]) -> Markup:
    """Draw the share of rows by set size, and how often sets of that size hold the label."""
    bars = _binned(set_sizes)
    step, left, top, bottom = 64.0, 16.0, 28.0, 168.0
    width, height = max(2 * left + step * len(bars), 240.0), 222.0
    y = linear(0.0, max(bar["share"] for bar in bars) or 1.0, bottom, top)
    parts = [tag("line", x1=left, x2=width - left, y1=bottom, y2=bottom, class_="axis")]
    for i, bar in enumerate(bars):
        center = left + step * (i + 0.5)
        box = {"x": center - 22, "y": y(bar["share"]), "height": bottom - y(bar["share"])}
        hint = f"{count(bar['n'])} sets of size {bar['label']}"
        parts += [
            tag("rect", tag("title", hint), width=44.0, rx=3.0, class_="bar", **box),
            _text(center, y(bar["share"]) - 8, percent(bar["share"]), "value"),
            _text(center, bottom + 20, bar["label"], "tick strong"),
            _text(center, bottom + 40, percent(bar["coverage"], 0), "tick"),
        ]
    spoken = "; ".join(f"size {bar['label']}: {percent(bar['share'])}" for bar in bars)
    return picture("sizes", width, height, "Share of rows by set size", f"{spoken}.", parts)


def _binned(set_sizes: Sequence[Row]) -> list[dict[str, Any]]:
    """Join neighbouring sizes if there are many, so that bars stay wide enough to read."""
    width = -(-len(set_sizes) // MAX_BARS)
    bars = []
    for first in range(0, len(set_sizes), width):
        part = set_sizes[first : first + width]
        n = sum(row["n"] for row in part)
        held = sum(row["n"] * row["coverage"] for row in part if row["coverage"] is not None)
        sizes = part[0]["size"], part[-1]["size"]
        bars.append(
            {
                "label": str(sizes[0]) if sizes[0] == sizes[1] else f"{sizes[0]}–{sizes[1]}",
                "n": n,
                "share": sum(row["share"] for row in part),
                "coverage": held / n if n else None,
            }
        )
    return bars


def slab_figure(measure: str, rows: Sequence[Row], confidence_level: float) -> Markup:
    """Draw worst-slab coverage by mass against the band that chance alone would give."""
    keys = ("value", "held_out", "null_low", "null_high")
    values = [row[key] for row in rows for key in keys if row[key] is not None]
    low, high = min([*values, confidence_level]) - 0.02, max([*values, confidence_level]) + 0.02
    x = linear(rows[0]["delta"], rows[-1]["delta"], LEFT + 16, RIGHT - 16)
    y = linear(max(low, 0.0), min(high, 1.02), BOTTOM, TOP)
    shares = {value: percent(value, 0) for value in ticks(max(low, 0.0), min(high, 1.0))}
    parts = _grid(shares, y, "smallest share of rows in a slab")
    parts += [_text(x(row["delta"]), BOTTOM + 20, percent(row["delta"], 0), "tick") for row in rows]
    parts += _band(rows, x, y)
    parts.append(_line_across(y(confidence_level), "target"))
    parts += _curve(rows, "held_out", x, y) + _curve(rows, "value", x, y)
    spoken = "; ".join(
        f"at {percent(row['delta'], 0)}: {percent(row['value'])} in-sample, "
        f"{percent(row['held_out'])} held out, chance {percent(row['null_low'])} to "
        f"{percent(row['null_high'])}"
        for row in rows
    )
    name = "slab-" + ("plus" if measure.endswith("+") else "linear")
    title = f"{measure}: worst coverage of any slab"
    return picture(name, WIDTH, HEIGHT, title, f"{spoken}.", parts)


def level_figure(
    name: str, title: str, rows: Sequence[Row], keys: tuple[str, str], target: float | None = None
) -> Markup:
    """Draw a number by level of disadvantage, before and after, with intervals if there are any.

    With a target the numbers are shares, otherwise mean set sizes.
    """
    write = size if target is None else percent
    known = [row for row in rows if row[keys[0]] is not None]
    ends = [k + e for k in keys for e in ("", "_low", "_high")]
    values = [row[key] for row in known for key in ends if key in row]
    values += [] if target is None else [target]  # its line is drawn too
    room = 0.05 * (max(values) - min(values)) or 0.05
    low, high = min(values) - room, max(values) + room
    low, high = (max(low, 0.0), high) if target is None else (max(low, 0.0), min(high, 1.02))
    x = linear(0.0, max(len(rows) - 1.0, 1.0), LEFT + 20, RIGHT - 20)
    y = linear(low, high, BOTTOM, TOP)
    marks = ticks(low, high if target is None else min(high, 1.0))
    texts = {value: f"{value:.3g}" if target is None else percent(value, 0) for value in marks}
    parts = _grid(texts, y, "level of disadvantage")
    step = -(-len(rows) // MAX_BARS)
    parts += [
        _text(x(row["level"]), BOTTOM + 20, str(row["level"]), "tick") for row in rows[::step]
    ]
    if target is not None:
        parts.append(_line_across(y(target), "target"))
    for key, moment, shift in zip(keys, ("before", "after"), (-3.0, 3.0), strict=True):
        parts += _level_curve(known, key, moment, [x(row["level"]) + shift for row in known], y)
    spoken = "; ".join(
        f"level {row['level']}: {write(row[keys[0]])} before, {write(row[keys[1]])} after"
        for row in known
    )
    return picture(name, WIDTH, HEIGHT, title, f"{spoken}.", parts)


def _grid(texts: Mapping[float, str], y: Scale, below: str) -> list[Markup]:
    """Return a line and a text for each value on the left axis, and a title below the other."""
    parts = [_text((LEFT + RIGHT) / 2, BOTTOM + 42, below, "tick")]
    for value, text in texts.items():
        parts.append(_line_across(y(value), "grid"))
        parts.append(_text(LEFT - 8, y(value) + 4, text, "tick", "end"))
    return parts


def _line_across(y: float, class_: str) -> Markup:
    return tag("line", x1=LEFT, x2=RIGHT, y1=y, y2=y, class_=class_)


def _level_curve(
    rows: Sequence[Row], key: str, moment: str, places: Sequence[float], y: Scale
) -> list[Markup]:
    points = " ".join(f"{at:.1f},{y(row[key]):.1f}" for at, row in zip(places, rows, strict=True))
    parts = [tag("polyline", points=points, class_=f"curve {moment}")]
    for at, row in zip(places, rows, strict=True):
        if f"{key}_low" in row:
            low, high = y(row[f"{key}_low"]), y(row[f"{key}_high"])
            parts.append(tag("line", x1=at, x2=at, y1=low, y2=high, class_=f"whisker {moment}"))
        parts.append(curve_mark(moment, at, y(row[key])))
    return parts


def _band(rows: Sequence[Row], x: Scale, y: Scale) -> list[Markup]:
    known = [row for row in rows if row["null_low"] is not None]
    if len(known) < 2:
        return []
    upper = [f"{x(row['delta']):.1f},{y(row['null_high']):.1f}" for row in known]
    lower = [f"{x(row['delta']):.1f},{y(row['null_low']):.1f}" for row in reversed(known)]
    return [tag("polygon", points=" ".join(upper + lower), class_="band")]


def _curve(rows: Sequence[Row], key: str, x: Scale, y: Scale) -> list[Markup]:
    known = [row for row in rows if row[key] is not None]
    points = " ".join(f"{x(row['delta']):.1f},{y(row[key]):.1f}" for row in known)
    parts = [tag("polyline", points=points, class_=f"curve {key}")]
    for row in known:
        hint = tag("title", f"{percent(row[key])} at a share of {percent(row['delta'], 0)}")
        parts.append(curve_mark(key, x(row["delta"]), y(row[key]), hint))
    return parts


def curve_mark(curve: str, x: float, y: float, *children: Markup) -> Markup:
    """Return the mark of a curve: a disc after and in-sample, a square before and held-out."""
    if curve in ("after", "value"):
        return tag("circle", *children, cx=x, cy=y, r=4.5, class_=f"point {curve}")
    return tag("rect", *children, x=x - 4, y=y - 4, width=8.0, height=8.0, class_=f"point {curve}")


def heat_cell(cell: Row, confidence_level: float) -> dict[str, Any]:
    """Return the class and the tint of a cell of the picture of a group; few rows stay grey."""
    if cell["n"] < MIN_SHOWN_ROWS:
        return {"kind": "few", "tint": 0.0}
    side = "low" if cell["coverage"] < confidence_level else "high"
    room = confidence_level if side == "low" else 1 - confidence_level
    strength = min(1.0, abs(cell["coverage"] - confidence_level) / max(min(room, 0.2), 1e-9))
    member = " member" if cell["inside"] > 0.5 else ""
    return {"kind": f"{side}{member}", "tint": round(0.08 + 0.42 * strength, 3)}


def _text(x: float, y: float, content: str, class_: str, anchor: str = "middle") -> Markup:
    return tag("text", content, x=x, y=y, class_=class_, text_anchor=anchor)
