"""The published FaReG method.

A network learns a membership probability that is high where marginal sets cover too little
(:class:`NetworkLearner`). Groups are drawn from it and calibrated on their members, and the set is
the union over the draws and the marginal set (:class:`DrawnGroups`). ``FaReGClassifier.paper``
returns :class:`PublishedFaReGClassifier`, which combines both.
"""

from fareg.paper._draws import DrawnGroups
from fareg.paper._explanation import (
    Explanation,
    explain_network,
    influential_steps,
    latent_importance,
)
from fareg.paper._learner import NetworkLearner
from fareg.paper._network import project_to_mass
from fareg.paper._published import PublishedFaReGClassifier

RECORDS = (DrawnGroups,)  # other objects that a model file may hold

__all__ = [
    "RECORDS",
    "DrawnGroups",
    "Explanation",
    "NetworkLearner",
    "PublishedFaReGClassifier",
    "explain_network",
    "influential_steps",
    "latent_importance",
    "project_to_mass",
]
