"""Every table and figure of the paper, and comparisons on published tables; both resumable.

An experiment is a frozen configuration; a cell is one method on one data set, size and seed, a
pure function of its configuration, stored as soon as it is there.
"""

from fareg.experiments._reproduce import Reproduction, list_targets, parse_sizes, reproduce
from fareg.experiments.arena._benchmark import Benchmark, benchmark, page_of

__all__ = [
    "Benchmark",
    "Reproduction",
    "benchmark",
    "list_targets",
    "page_of",
    "parse_sizes",
    "reproduce",
]
