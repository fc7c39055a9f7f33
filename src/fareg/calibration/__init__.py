"""Calibration as a value: labelled rows in, thresholds and p-values of other rows out.

Each method has one small calibration: a frozen record with ``thresholds(batch)``, in most cases
``pvalues(batch)``, ``full_sets()`` for warnings, and ``check(batch, n_labels, alpha)``, which
refuses a stored calibration whose parts contradict each other. No calibration uses an estimator.
"""

from fareg.calibration._afcp import SelectedLevels
from fareg.calibration._batch import (
    MAX_WEIGHT,
    NEW_WEIGHT,
    Batch,
    Calibration,
    Labelled,
    Sample,
    further_uniforms,
    warn_of_full_sets,
)
from fareg.calibration._condcp import ConditionalQuantiles, GroupBasis, MappedBasis
from fareg.calibration._learned import (
    LearnedQuantile,
    Rectified,
    RegionCells,
    Regions,
    RegionSearch,
    learn_quantile,
    learn_region_cells,
)
from fareg.calibration._levels import LevelThresholds
from fareg.calibration._mondrian import (
    ABSENT,
    UNSEEN,
    Everyone,
    FeatureLevels,
    JointLevels,
    Members,
    Mondrian,
    Union,
)

RECORDS = (
    *(ConditionalQuantiles, Everyone, FeatureLevels, GroupBasis, JointLevels, LearnedQuantile),
    *(LevelThresholds, MappedBasis, Members, Mondrian, Rectified, RegionCells, Regions, Sample),
    *(SelectedLevels, Union),
)  # what a model file may hold

__all__ = ["ABSENT", "MAX_WEIGHT", "NEW_WEIGHT", "RECORDS", "UNSEEN", "Batch", "Calibration"]
__all__ += ["Labelled", "RegionSearch", "further_uniforms", "learn_quantile", "learn_region_cells"]
__all__ += ["warn_of_full_sets", *(record.__name__ for record in RECORDS)]
