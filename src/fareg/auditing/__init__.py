"""Audit of anyone's prediction sets: who is covered less often than promised?"""

from fareg.auditing._audit import audit
from fareg.auditing._comparison import Comparison, RowLevels, compare_sets
from fareg.auditing._rate import Promise, Rate
from fareg.auditing._result import AuditResult
from fareg.auditing._search import Finding
from fareg.auditing._tables import MIN_HEADLINE_ROWS, levels_before_and_after, records

__all__ = [
    "MIN_HEADLINE_ROWS",
    "AuditResult",
    "Comparison",
    "Finding",
    "Promise",
    "Rate",
    "RowLevels",
    "audit",
    "compare_sets",
    "levels_before_and_after",
    "records",
]
