"""Groups that are worse off: as a number that models predict, as levels, and in words."""

from fareg.groups._disadvantage import (
    Disadvantage,
    DisadvantageLevels,
    LabelLevels,
    Signal,
    learn_disadvantage,
    permutation_shares,
)
from fareg.groups._members import ColumnReading, KernelSum
from fareg.groups._pursuit import MAX_SHARE, find_groups, is_far_below
from fareg.groups._rules import Condition, Rule

RECORDS = (
    *(ColumnReading, Condition, Disadvantage, DisadvantageLevels, KernelSum, LabelLevels, Rule),
    Signal,
)  # what a model file may hold

__all__ = [
    "MAX_SHARE",
    "RECORDS",
    "Condition",
    "Disadvantage",
    "DisadvantageLevels",
    "LabelLevels",
    "Rule",
    "Signal",
    "find_groups",
    "is_far_below",
    "learn_disadvantage",
    "permutation_shares",
]
