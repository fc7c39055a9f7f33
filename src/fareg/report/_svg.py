"""Small pieces of SVG: escaped text, classes instead of colours, scales and ticks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from markupsafe import Markup, escape

Scale = Callable[[float], float]
SCREEN = 500.0  # pixels: a drawing up to this width may shrink to a phone and stays readable


def tag(name: str, *children: Any, **attributes: Any) -> Markup:
    """Return one element; ``class_`` is class, and underscores become hyphens."""
    shown = Markup("")
    for key, value in attributes.items():
        text = f"{value:.6g}" if isinstance(value, float) else value
        shown += Markup(' {}="{}"').format(Markup(key.rstrip("_").replace("_", "-")), text)
    if not children:
        return Markup("<{0}{1}/>").format(Markup(name), shown)
    content = Markup("").join(escape(child) for child in children)
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(name), shown, content)


def picture(
    name: str, width: float, height: float, title: str, description: str, parts: Iterable[Markup]
) -> Markup:
    """Return a drawing that a screen reader announces by title and description."""
    return tag(
        "svg",
        tag("title", title, id=f"{name}-title"),
        tag("desc", description, id=f"{name}-desc"),
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        role="img",
        class_="figure fits" if width <= SCREEN else "figure",
        viewBox=f"0 0 {width:g} {height:g}",
        width=float(width),
        height=float(height),
        aria_labelledby=f"{name}-title {name}-desc",
    )


def linear(low: float, high: float, start: float, stop: float) -> Scale:
    """Return the map from values in [low, high] to pixels in [start, stop]."""
    spread = (high - low) or 1.0
    return lambda value: start + (value - low) / spread * (stop - start)


def ticks(low: float, high: float) -> list[float]:
    """Return round values in [low, high], about six at most.

    >>> ticks(0.71, 0.93)
    [0.75, 0.8, 0.85, 0.9]
    """
    steps = [m * 10.0**e for e in range(-4, 4) for m in (1, 2, 5)]
    step = next((s for s in steps if (high - low) / s < 6), steps[-1])
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 10) for i in range(first, last + 1)]
