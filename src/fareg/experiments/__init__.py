"""Every table and figure of the paper, resumable, on two cores.

An experiment is a frozen configuration; a cell is one method on one data set, size and seed, a
pure function of its configuration, stored as soon as it is there.
"""

from fareg.experiments._reproduce import Reproduction, list_targets, parse_sizes, reproduce

__all__ = ["Reproduction", "list_targets", "parse_sizes", "reproduce"]
