"""What each column of a table is for: the model reads it, it defines groups, both or neither."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import pandas as pd

from fareg._columns import check_columns
from fareg._validation import InvalidInputError, warn
from fareg.workflow._ids import LooksLikeIdWarning, id_note, is_id


@dataclass(frozen=True)
class Roles:
    """What the columns of a table are for."""

    target: str
    features: list[str]  # what the model reads
    sensitive: list[str] | None  # may define a group; None if all features and others may
    others: list[str]  # may define a group, and the model does not read them
    aside: dict[str, str]  # all others, which are "clusters", "ids", "weights", "dropped" or "id"
    ids: str | None = None  # tells whose row it is

    @property
    def columns(self) -> list[str]:
        """What a prediction needs: the features, and what else may define a group."""
        return [*self.features, *self.others]

    def notes(self) -> dict[str, Any]:
        """Return what a model file remembers beside its columns."""
        told = {"not_features": self.others, "left_out": self.aside, "ids": self.ids}
        return {name: value for name, value in told.items() if value}


@dataclass(frozen=True)
class AskedRoles:
    """The columns that a user names for something, as in :func:`fareg.workflow.fit_file`."""

    target: str
    sensitive: Sequence[str] | None = None
    features: Sequence[str] | None = None
    not_features: Sequence[str] = ()
    drop: Sequence[str] = ()  # also columns that the table no longer has
    clusters: str | None = None
    weights: str | None = None
    ids: str | None = None  # may be the column of clusters too
    source: str = "the table"  # its name in errors


def assign_roles(
    frame: pd.DataFrame, asked: AskedRoles, probabilities: Sequence[str] = ()
) -> Roles:
    """Return the roles of all columns of a table, after checks that they do not contradict.

    ``probabilities`` are columns of class probabilities, which are then all that the model reads,
    and define no groups. A column of text or whole numbers that differs in every row is left out
    with a warning, unless it is named for something, or there is no other. A warning also names
    columns that look like ids of people or places with several rows, which stay.

    >>> frame = pd.DataFrame({"age": [40, 40], "sex": ["f", "m"], "y": ["a", "b"]})
    >>> roles = assign_roles(frame, AskedRoles("y", not_features=["sex"]))
    >>> roles.features, roles.others
    (['age'], ['sex'])
    """
    target, features, sensitive = asked.target, asked.features, asked.sensitive
    used = {
        "a feature": features or (),
        "not a feature": asked.not_features,
        "sensitive": sensitive or (),
    }
    given: dict[str, Sequence[str]] = {
        "the target": [target],
        "the column of clusters": [] if asked.clusters is None else [asked.clusters],
        "the column of weights": [] if asked.weights is None else [asked.weights],
        "the column of ids": [] if asked.ids in (None, asked.clusters) else [asked.ids],
        "dropped": asked.drop,
        "a probability": probabilities,
        **used,
    }
    names = [str(name) for name in frame.columns]
    for wanted in given.values():
        check_columns(list(wanted), [*names, *asked.drop], asked.source)
    _check_apart(given)
    aside = dict.fromkeys(given["the column of clusters"], "clusters")
    aside |= dict.fromkeys(given["the column of weights"], "weights")
    aside |= dict.fromkeys(given["the column of ids"], "ids")
    aside |= dict.fromkeys(asked.drop, "dropped")
    free = [name for name in names if name not in {target, *aside, *probabilities}]
    named, ids = {name for some in used.values() for name in some}, []
    # An id does harm only where all columns that nobody names are used.
    if sensitive is None or (features is None and not probabilities):
        ids = [name for name in free if name not in named and is_id(frame[name])]
    if ids and (ids != free or probabilities):  # there are other columns
        warn(
            f"{', '.join(ids)}: different in every row, taken as ids that neither train the model "
            "nor define groups; name them among the features if they are none"
        )
        aside |= dict.fromkeys(ids, "id")
        free = [name for name in free if name not in ids]
    unread = asked.not_features
    reads = [name for name in free if name not in unread] if features is None else features
    reads = probabilities or reads
    if probabilities and not free:
        raise InvalidInputError(
            f"{asked.source} has no column left that could define a group beside the probabilities "
            f"and the target {target}; add columns that tell who the rows are about"
        )
    if not reads:
        raise InvalidInputError(
            f"{asked.source} has no column left that the model could read beside the target "
            f"{target}; leave out fewer"
        )
    limited = None if sensitive is None else list(dict.fromkeys([*sensitive, *unread]))
    groups = free if limited is None else limited
    unnamed = [name for name in free if name not in named and name in {*reads, *groups}]
    if note := id_note(frame, unnamed):
        warn(note, LooksLikeIdWarning)
    others = [name for name in free if name in groups and name not in reads]
    return Roles(target, list(dict.fromkeys(reads)), limited, others, aside, asked.ids)


def _check_apart(roles: dict[str, Sequence[str]]) -> None:
    """Refuse a column with two roles, other than a sensitive one that is or is not a feature."""
    for first, second in combinations(roles, 2):
        both = [name for name in roles[first] if name in roles[second]]
        if both and (second != "sensitive" or first not in ("a feature", "not a feature")):
            raise InvalidInputError(
                f"column {both[0]} cannot be both {first} and {second}; name it once"
            )
