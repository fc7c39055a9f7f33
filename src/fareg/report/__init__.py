"""Reports: a summary in plain types becomes one HTML file that needs nothing else."""

from fareg.report._render import render_report

__all__ = ["render_report"]
