"""Fair conformal classification for groups nobody named."""

from fareg._validation import FaregError, FaregWarning
from fareg.classifiers import (
    ExhaustiveConformalClassifier,
    PartialConformalClassifier,
    SplitConformalClassifier,
)

__all__ = [
    "ExhaustiveConformalClassifier",
    "FaregError",
    "FaregWarning",
    "PartialConformalClassifier",
    "SplitConformalClassifier",
]
