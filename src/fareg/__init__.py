"""Fair conformal classification for groups nobody named."""

from fareg._validation import FaregError, FaregWarning
from fareg.classifiers import (
    AFCPClassifier,
    CondCPClassifier,
    ExhaustiveConformalClassifier,
    FaReGClassifier,
    PartialConformalClassifier,
    PLCPClassifier,
    SplitConformalClassifier,
)

__all__ = [
    "AFCPClassifier",
    "CondCPClassifier",
    "ExhaustiveConformalClassifier",
    "FaReGClassifier",
    "FaregError",
    "FaregWarning",
    "PLCPClassifier",
    "PartialConformalClassifier",
    "SplitConformalClassifier",
]
