"""Groups that nobody named: learned where coverage is low, explained in words."""

from fareg.groups._learner import GroupLearner, cells_of, cut_membership
from fareg.groups._projection import project_to_mass

__all__ = ["GroupLearner", "cells_of", "cut_membership", "project_to_mass"]
