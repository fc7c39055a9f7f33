"""Every table and figure of the paper, and comparisons on published tables; both resumable.

A problem is a frozen configuration that draws rows and trains a base model. A method turns it into
prediction sets. A cell is one method on one problem, measured and stored as soon as it is done.
Pages are written from the stored rows.
"""

from fareg.experiments._benchmark import Benchmark, benchmark
from fareg.experiments._reproduce import Reproduction, list_targets, reproduce

__all__ = ["Benchmark", "Reproduction", "benchmark", "list_targets", "reproduce"]
