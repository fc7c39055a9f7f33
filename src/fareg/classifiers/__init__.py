"""Conformal classifiers: scikit-learn estimators with ``conformalize`` and ``predict_set``."""

from fareg.classifiers._afcp import AFCPClassifier
from fareg.classifiers._condcp import CondCPClassifier
from fareg.classifiers._equalized import ExhaustiveConformalClassifier, PartialConformalClassifier
from fareg.classifiers._fareg import FaReGClassifier
from fareg.classifiers._plcp import PLCPClassifier
from fareg.classifiers._split import SplitConformalClassifier

__all__ = [
    "AFCPClassifier",
    "CondCPClassifier",
    "ExhaustiveConformalClassifier",
    "FaReGClassifier",
    "PLCPClassifier",
    "PartialConformalClassifier",
    "SplitConformalClassifier",
]
