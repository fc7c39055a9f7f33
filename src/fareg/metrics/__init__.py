"""Measures of coverage, overall and conditional: functions of arrays, no models needed.

``coverage_score`` and ``mean_set_size`` describe prediction sets as a whole. Their scorers work in
scikit-learn's searches, and ``set_metrics`` in fairlearn. ``coverage_by_group`` describes the
categories of a table, ``coverage_by_label`` the rows of each true label, ``coverage_by_level`` the
levels of disadvantage. ``worst_slab_coverage`` (WSC and WSC+) searches for the worst group of a
geometric shape. ``excess_risk`` (ERT) measures how well coverage can be predicted from X, and its
under part how well under-coverage can.
"""

from fareg.metrics._by_group import (
    clopper_pearson,
    coverage_by_group,
    coverage_by_label,
    coverage_by_level,
    tally,
    with_intervals,
)
from fareg.metrics._coverage import (
    coverage_score,
    coverage_scorer,
    is_covered,
    mean_set_size,
    mean_set_size_scorer,
    set_metrics,
)
from fareg.metrics._excess_risk import ExcessRisk, excess_risk, excess_risk_parts
from fareg.metrics._worst_slab import (
    NullBand,
    WorstSlab,
    on_one_scale,
    worst_slab_coverage,
    worst_slab_curve,
)

__all__ = [
    "ExcessRisk",
    "NullBand",
    "WorstSlab",
    "clopper_pearson",
    "coverage_by_group",
    "coverage_by_label",
    "coverage_by_level",
    "coverage_score",
    "coverage_scorer",
    "excess_risk",
    "excess_risk_parts",
    "is_covered",
    "mean_set_size",
    "mean_set_size_scorer",
    "on_one_scale",
    "set_metrics",
    "tally",
    "with_intervals",
    "worst_slab_coverage",
    "worst_slab_curve",
]
