"""Audit of anyone's prediction sets: who is covered less often than promised?"""

from fareg.audit._audit import audit
from fareg.audit._result import AuditResult
from fareg.audit._verification import VerifiedGroup

__all__ = ["AuditResult", "VerifiedGroup", "audit"]
