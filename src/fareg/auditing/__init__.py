"""Audit of anyone's prediction sets: who is covered less often than promised?"""

from fareg.auditing._audit import audit
from fareg.auditing._result import AuditResult
from fareg.auditing._verification import VerifiedGroup

__all__ = ["AuditResult", "VerifiedGroup", "audit"]
