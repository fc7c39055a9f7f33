"""Groups that nobody named: learned where coverage is low, explained in words."""

from fareg.groups._boosting import BoostedTrees
from fareg.groups._cells import CellMeans
from fareg.groups._conditions import Alternatives, AskedRows, Condition, without
from fareg.groups._disadvantage import MEMBERS, Disadvantage, Signal, learn_quickly
from fareg.groups._explanation import Explanation, explain_groups, plot_membership
from fareg.groups._folds import N_FOLDS
from fareg.groups._kernel import KernelPart, KernelRegression, Reading
from fareg.groups._learner import GroupLearner, cells_of, cut_membership
from fareg.groups._projection import project_to_mass
from fareg.groups._rules import Rule, distil_rule
from fareg.groups._screening import Screening
from fareg.groups._wording import candidate_rules
from fareg.groups._worth import MAX_SHARE

RECORDS = (
    BoostedTrees,
    CellMeans,
    Condition,
    Disadvantage,
    KernelPart,
    KernelRegression,
    Reading,
    Rule,
    Screening,
    Signal,
)  # what a model file may hold

__all__ = [
    "MAX_SHARE",
    "MEMBERS",
    "N_FOLDS",
    "RECORDS",
    "Alternatives",
    "AskedRows",
    "Condition",
    "Disadvantage",
    "Explanation",
    "GroupLearner",
    "Rule",
    "candidate_rules",
    "cells_of",
    "cut_membership",
    "distil_rule",
    "explain_groups",
    "learn_quickly",
    "plot_membership",
    "project_to_mass",
    "without",
]
