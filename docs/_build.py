"""Writes every page with numbers, from stored rows alone (``make docs``, ``make pages``).

A page is a template in ``docs/_templates``. A function of ``_studies`` makes its tables and numbers
from the rows in ``benchmarks`` and ``docs``. Long tables become CSV files in ``docs/results``, and
pages link to them. A test renders everything again and compares.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

DOCS = Path(__file__).parent
sys.path.append(str(DOCS))

import _pictures  # noqa: E402
import _studies  # noqa: E402

from fareg._files import replacing  # noqa: E402
from fareg.experiments._figures import draw_image  # noqa: E402
from fareg.experiments._reports import write_page  # noqa: E402

PAGES: dict[str, Callable[[], dict[str, Any]]] = {
    "../README.md": _studies.readme,
    "results.md": _studies.results,
    "scale.md": _studies.scale,
}
TABLES: dict[str, Callable[[], pd.DataFrame]] = {
    "results/shapes.csv": _studies.shapes,
    "results/methods.csv": _studies.methods,
    "results/random-groups.csv": _studies.random_groups,
    "results/mechanisms.csv": _studies.mechanisms,
    "results/timings.csv": _studies.timings,
    "results/growth.csv": _studies.growth,
    "results/shift.csv": lambda: _studies.stored("benchmarks/shift.csv"),
    "real-data/tables.csv": _studies.real_by_table,
}
PICTURES: dict[str, Callable[[], Any]] = {
    "groups.svg": _pictures.groups,
    "results/shapes.svg": _pictures.shapes,
    "results/growth.svg": _pictures.growth,
    "real-data/natural.svg": lambda: _studies.real_figure("natural"),
    "real-data/noise.svg": lambda: _studies.real_figure("noise"),
}


def percent(share: float, digits: int = 1) -> str:
    """Write a share as percent.

    >>> percent(0.8996), percent(0.05, 0)
    ('90.0%', '5%')
    """
    return f"{100 * share:.{digits}f}%"


def points(difference: float, digits: int = 1) -> str:
    """Write a difference of shares in points, with its sign.

    >>> points(-0.0234), points(0.00001)
    ('-2.3', '0.0')
    """
    text = f"{100 * difference:+.{digits}f}"
    return text.lstrip("+-") if not float(text) else text


def seconds(value: float | None) -> str:
    """Write seconds with three digits."""
    if value is None or pd.isna(value):
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def times(ratio: float) -> str:
    """Write how many times longer something takes, with two digits."""
    return f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.2g}"


def count(number: float) -> str:
    """Write a whole number with commas."""
    return f"{number:,.0f}"


ENVIRONMENT = Environment(
    loader=FileSystemLoader(DOCS / "_templates"),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    autoescape=False,  # Markdown
)
ENVIRONMENT.filters.update(percent=percent, points=points, seconds=seconds, times=times, n=count)


def texts() -> dict[str, str]:
    """Return pages and tables by their path in ``docs``."""
    pages = {
        name: ENVIRONMENT.get_template(f"{Path(name).name}.jinja").render(facts())
        for name, facts in PAGES.items()
    }
    pages["real-data.md"] = _studies.real_page()
    tables = {
        name: rows().to_csv(index=False, float_format="%.4g", lineterminator="\n")
        for name, rows in TABLES.items()
    }
    return pages | tables


def main() -> None:
    """Write pages, tables and pictures; the page of the paper is written from its summaries."""
    write_page(DOCS / "reproduction.md")
    (DOCS / "results").mkdir(exist_ok=True)
    for name, text in texts().items():
        with replacing(DOCS / name) as temporary:
            temporary.write_text(text, encoding="utf-8")
    for name, draw in PICTURES.items():
        with replacing(DOCS / name) as temporary:
            temporary.write_bytes(draw_image(draw(), "svg"))


if __name__ == "__main__":
    main()
