"""Conformal classifiers: scikit-learn estimators with ``conformalize`` and ``predict_set``."""

from fareg.classifiers._afcp import AFCPClassifier
from fareg.classifiers._base import ConformalClassifier
from fareg.classifiers._condcp import CondCPClassifier
from fareg.classifiers._equalized import ExhaustiveConformalClassifier, PartialConformalClassifier
from fareg.classifiers._estimators import trained
from fareg.classifiers._fareg import FaReGClassifier
from fareg.classifiers._learning import divide_rows, out_of_fold_proba, split_rows
from fareg.classifiers._naming import NamedGroup
from fareg.classifiers._plcp import PLCPClassifier
from fareg.classifiers._probabilities import (
    ProbabilityArrays,
    ProbabilityColumns,
    ProbabilityFunction,
    hidden_columns,
)
from fareg.classifiers._rectified import RectifiedConformalClassifier
from fareg.classifiers._split import SplitConformalClassifier
from fareg.classifiers._views import DisadvantageLevels as _Levels
from fareg.classifiers._views import GroupCells as _Cells
from fareg.classifiers._views import GroupDraws as _Draws

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

# estimators that a model file holds as plain values
OWN_ESTIMATORS = (ProbabilityArrays, ProbabilityColumns)

RECORDS = (NamedGroup, _Cells, _Draws, _Levels)  # what a model file may hold beside them

__all__ = [
    "CLASSIFIERS",
    "OWN_ESTIMATORS",
    "RECORDS",
    "AFCPClassifier",
    "CondCPClassifier",
    "ConformalClassifier",
    "ExhaustiveConformalClassifier",
    "FaReGClassifier",
    "NamedGroup",
    "PLCPClassifier",
    "PartialConformalClassifier",
    "ProbabilityArrays",
    "ProbabilityColumns",
    "ProbabilityFunction",
    "RectifiedConformalClassifier",
    "SplitConformalClassifier",
    "divide_rows",
    "hidden_columns",
    "out_of_fold_proba",
    "split_rows",
    "trained",
]
