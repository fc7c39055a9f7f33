"""Conformal classifiers: scikit-learn estimators with ``conformalize`` and ``predict_set``.

To follow the default method from ``fit`` to sets, read ``_fareg`` (what is learned and
calibrated), ``_classifier`` (``fit`` and ``conformalize``), ``_rows`` (input checks), ``_models``
(training, and which rows teach), ``_answers`` (scores and sets), then ``fareg.calibration`` and
``fareg.groups``, which know no estimator.
"""

from fareg.classifiers._classifier import ConformalClassifier
from fareg.classifiers._equalized import (
    AFCPClassifier,
    ExhaustiveConformalClassifier,
    PartialConformalClassifier,
    SplitConformalClassifier,
)
from fareg.classifiers._fareg import FaReGClassifier
from fareg.classifiers._learned import (
    CondCPClassifier,
    PLCPClassifier,
    RectifiedConformalClassifier,
)
from fareg.classifiers._models import (
    Training,
    divide_rows,
    hidden_columns,
    is_given,
    out_of_fold_proba,
    split_rows,
)
from fareg.classifiers._naming import NamedGroup
from fareg.classifiers._probabilities import (
    ProbabilityArrays,
    ProbabilityColumns,
    ProbabilityFunction,
)

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

RECORDS = (NamedGroup,)  # other objects that a model file may hold

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
    "Training",
    "divide_rows",
    "hidden_columns",
    "is_given",
    "out_of_fold_proba",
    "split_rows",
]
