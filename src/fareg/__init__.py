"""Fair conformal classification for groups nobody named."""

from fareg._validation import FaregError, FaregWarning
from fareg.audit import AuditResult, audit
from fareg.classifiers import (
    AFCPClassifier,
    CondCPClassifier,
    ExhaustiveConformalClassifier,
    FaReGClassifier,
    PartialConformalClassifier,
    PLCPClassifier,
    SplitConformalClassifier,
)
from fareg.persistence import load, save

__all__ = [
    "AFCPClassifier",
    "AuditResult",
    "CondCPClassifier",
    "ExhaustiveConformalClassifier",
    "FaReGClassifier",
    "FaregError",
    "FaregWarning",
    "PLCPClassifier",
    "PartialConformalClassifier",
    "SplitConformalClassifier",
    "audit",
    "load",
    "save",
]
