"""Fair conformal classification for groups nobody named."""

from importlib.metadata import version as _version

from fareg._validation import FaregError, FaregWarning
from fareg.auditing import AuditResult, audit
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

__version__ = _version("fareg")

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
