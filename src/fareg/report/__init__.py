"""Reports: a summary in plain types as one HTML file, a card for notebooks, figures."""

from fareg import _words as words
from fareg.report._figures import MIN_SHOWN_ROWS
from fareg.report._render import render_card, render_markdown, render_report, text_table

__all__ = [
    "MIN_SHOWN_ROWS",
    "render_card",
    "render_markdown",
    "render_report",
    "text_table",
    "words",
]
