"""Comparisons of methods on tables that others have published."""

from fareg.experiments.arena._benchmark import Benchmark, benchmark, page_of

__all__ = ["Benchmark", "benchmark", "page_of"]
