"""Conformal classifiers: scikit-learn estimators with ``conformalize`` and ``predict_set``."""

from fareg.classifiers._equalized import ExhaustiveConformalClassifier, PartialConformalClassifier
from fareg.classifiers._split import SplitConformalClassifier

__all__ = [
    "ExhaustiveConformalClassifier",
    "PartialConformalClassifier",
    "SplitConformalClassifier",
]
