"""Every table and figure of the paper, and comparisons on published tables; both resumable.

A problem is a frozen configuration that draws rows and trains a base model; a method turns it into
prediction sets; a cell is one method on one problem, measured and stored as soon as it is there;
a page is written from the stored rows.
"""

from fareg.experiments._benchmark import Benchmark, benchmark
from fareg.experiments._reproduce import Reproduction, list_targets, reproduce

__all__ = ["Benchmark", "Reproduction", "benchmark", "list_targets", "reproduce"]
