"""Calibration as a value: labelled rows in, thresholds and p-values of other rows out.

There is one small calibration per idea. Each is a frozen record of what cannot be derived, with
``thresholds(rows)``, ``pvalues(rows)`` where it has them, ``full_sets()`` for warnings, and
``check(rows, n_labels)``, which refuses a stored calibration whose parts contradict each other.
None of them knows an estimator.
"""

from fareg.calibration._afcp import SelectedCalibration
from fareg.calibration._calibration import warn_of_full_sets
from fareg.calibration._cells import (
    ABSENT,
    CellCalibration,
    EveryFeature,
    Everyone,
    JointLevels,
    Views,
)
from fareg.calibration._condcp import ConditionalCalibration, GroupBasis, MappedBasis
from fareg.calibration._counting import CountedLevels, CountingRound, IntervalSearch, ScoreCounts
from fareg.calibration._levels import (
    LevelCalibration,
    RisingThresholds,
    level_pvalues,
    level_thresholds,
)
from fareg.calibration._people import one_of_each_cluster
from fareg.calibration._regions import (
    RegionCalibration,
    Regions,
    RegionSearch,
    RegionViews,
    learn_region_views,
)
from fareg.calibration._rows import GivenProba, Rows, require
from fareg.calibration._shifted import LearnedShift, ShiftedCalibration, learn_shift
from fareg.calibration._union import ReselectedCalibration, UnionCalibration

RECORDS = (
    CellCalibration,
    ConditionalCalibration,
    CountedLevels,
    EveryFeature,
    Everyone,
    GroupBasis,
    JointLevels,
    LearnedShift,
    LevelCalibration,
    RegionCalibration,
    RegionViews,
    Regions,
    ReselectedCalibration,
    SelectedCalibration,
    ShiftedCalibration,
    UnionCalibration,
)  # what a model file may hold

__all__ = [
    "ABSENT",
    "RECORDS",
    "CellCalibration",
    "ConditionalCalibration",
    "CountedLevels",
    "CountingRound",
    "EveryFeature",
    "Everyone",
    "GivenProba",
    "GroupBasis",
    "IntervalSearch",
    "JointLevels",
    "LevelCalibration",
    "MappedBasis",
    "RegionCalibration",
    "RegionSearch",
    "ReselectedCalibration",
    "RisingThresholds",
    "Rows",
    "ScoreCounts",
    "SelectedCalibration",
    "ShiftedCalibration",
    "UnionCalibration",
    "Views",
    "learn_region_views",
    "learn_shift",
    "level_pvalues",
    "level_thresholds",
    "one_of_each_cluster",
    "require",
    "warn_of_full_sets",
]
