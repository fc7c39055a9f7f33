"""Conformal classifiers: scikit-learn estimators with ``conformalize`` and ``predict_set``."""

from fareg.classifiers._afcp import AFCPClassifier
from fareg.classifiers._base import ConformalClassifier
from fareg.classifiers._condcp import CondCPClassifier
from fareg.classifiers._equalized import ExhaustiveConformalClassifier, PartialConformalClassifier
from fareg.classifiers._fareg import FaReGClassifier
from fareg.classifiers._plcp import PLCPClassifier
from fareg.classifiers._rectified import RectifiedConformalClassifier
from fareg.classifiers._split import SplitConformalClassifier
from fareg.classifiers._views import RECORDS

CLASSIFIERS = (
    AFCPClassifier,
    CondCPClassifier,
    ExhaustiveConformalClassifier,
    FaReGClassifier,
    PLCPClassifier,
    PartialConformalClassifier,
    RectifiedConformalClassifier,
    SplitConformalClassifier,
)

__all__ = [
    "CLASSIFIERS",
    "RECORDS",
    "AFCPClassifier",
    "CondCPClassifier",
    "ConformalClassifier",
    "ExhaustiveConformalClassifier",
    "FaReGClassifier",
    "PLCPClassifier",
    "PartialConformalClassifier",
    "RectifiedConformalClassifier",
    "SplitConformalClassifier",
]
