"""Audit of anyone's prediction sets: who is covered less often than promised?"""

from fareg.auditing._audit import audit
from fareg.auditing._comparison import Comparison, compare_sets
from fareg.auditing._counts import Promise
from fareg.auditing._result import AuditResult, records
from fareg.auditing._story import RowLevels, levels_before_and_after
from fareg.auditing._verification import VerifiedGroup

__all__ = [
    "AuditResult",
    "Comparison",
    "Promise",
    "RowLevels",
    "VerifiedGroup",
    "audit",
    "compare_sets",
    "levels_before_and_after",
    "records",
]
