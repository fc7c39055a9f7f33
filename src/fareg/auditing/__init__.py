"""Audit of anyone's prediction sets: who is covered less often than promised?"""

from fareg.auditing._audit import audit
from fareg.auditing._cells import below_level_pvalue
from fareg.auditing._picture import group_picture
from fareg.auditing._result import AuditResult, records
from fareg.auditing._verification import MIN_FIDELITY, NO_RULE, VerifiedGroup

__all__ = [
    "MIN_FIDELITY",
    "NO_RULE",
    "AuditResult",
    "VerifiedGroup",
    "audit",
    "below_level_pvalue",
    "group_picture",
    "records",
]
