"""Reports: numbers and verdicts in words, and a summary in plain types as one HTML file."""

from fareg import _words as words
from fareg.report._render import render_card, render_report
from fareg.report._steps import MIN_HEADLINE_ROWS, renamed
from fareg.report._verdict import (
    MIN_SHOWN_ROWS,
    audit_verdict,
    fit_verdict,
    headline_group,
    worst_label,
)

__all__ = [
    "MIN_HEADLINE_ROWS",
    "MIN_SHOWN_ROWS",
    "audit_verdict",
    "fit_verdict",
    "headline_group",
    "renamed",
    "render_card",
    "render_report",
    "words",
    "worst_label",
]
