"""Fair conformal classification for groups nobody named."""

from fareg._validation import FaregError, FaregWarning
from fareg.classifiers import (
    AFCPClassifier,
    CondCPClassifier,
    ExhaustiveConformalClassifier,
    PartialConformalClassifier,
    PLCPClassifier,
    SplitConformalClassifier,
)

__all__ = [
    "AFCPClassifier",
    "CondCPClassifier",
    "ExhaustiveConformalClassifier",
    "FaregError",
    "FaregWarning",
    "PLCPClassifier",
    "PartialConformalClassifier",
    "SplitConformalClassifier",
]
