"""Fair conformal classification for groups nobody named."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from fareg._lazy import lazy_names as _lazy_names

if _TYPE_CHECKING:  # for type checkers and editors; Python imports a name when it is used
    from fareg._drift import accept_drift
    from fareg._validation import FaregError, FaregWarning
    from fareg._version import __version__ as __version__
    from fareg.auditing import AuditResult, audit
    from fareg.classifiers import (
        AFCPClassifier,
        CondCPClassifier,
        ExhaustiveConformalClassifier,
        FaReGClassifier,
        PartialConformalClassifier,
        PLCPClassifier,
        ProbabilityColumns,
        ProbabilityFunction,
        RectifiedConformalClassifier,
        SplitConformalClassifier,
    )
    from fareg.groups import Rule
    from fareg.monitoring import CoverageMonitor
    from fareg.persistence import load, save

__all__ = [
    "AFCPClassifier",
    "AuditResult",
    "CondCPClassifier",
    "CoverageMonitor",
    "ExhaustiveConformalClassifier",
    "FaReGClassifier",
    "FaregError",
    "FaregWarning",
    "PLCPClassifier",
    "PartialConformalClassifier",
    "ProbabilityColumns",
    "ProbabilityFunction",
    "RectifiedConformalClassifier",
    "Rule",
    "SplitConformalClassifier",
    "accept_drift",
    "audit",
    "load",
    "save",
]

_CLASSIFIERS = [name for name in __all__ if name.endswith("Classifier")]
_HOMES = {
    "_drift": ["accept_drift"],
    "_validation": ["FaregError", "FaregWarning"],
    "_version": ["__version__"],
    "auditing": ["AuditResult", "audit"],
    "classifiers": ["ProbabilityColumns", "ProbabilityFunction", "classifiers", *_CLASSIFIERS],
    "groups": ["Rule", "groups"],
    "monitoring": ["CoverageMonitor", "monitoring"],
    "persistence": ["load", "persistence", "save"],
    **{room: [room] for room in ("datasets", "metrics", "paper", "pvalues", "scores", "shift")},
}
__getattr__, __dir__ = _lazy_names("fareg", _HOMES)
