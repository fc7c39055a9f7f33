"""The roles of a table's columns, and checks of labels, clusters and ids."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from fareg._columns import canonical, check_columns
from fareg._validation import FaregWarning, IntArray, InvalidInputError, warn
from fareg._words import count, percent, quoted, rows
from fareg.workflow._labels import LARGEST_INT, label_texts
from fareg.workflow._values import column_kinds

MIN_ROWS = 20
MIN_CLUSTERS = 3  # one for each part of the split
MANY_VALUES = 20  # more whole numbers than this look like amounts
ROWS_PER_NUMBER = 10  # such numbers are refused if each has fewer rows than this on average
RARE = 10  # a class with fewer training rows is hardly learned
SHOWN = 5
CHOOSE = "choose a column of classes, or group its values"
MIN_VALUES = 20
MAX_ROWS_PER_VALUE = 10  # on average; values that repeat more often are categories
NEARLY_ALL = 0.9  # share of distinct texts above which texts hardly repeat
WORDS = "ids?|uid|uuid|guid|nbr|ssn|mrn|patient|person|people|customer|client|user|student|who"
ID_WORD = re.compile(rf"(?<![a-z])({WORDS})(?![a-z])")
CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")  # where words meet in patientId
DATE = re.compile(r"\s*\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}\b.*", re.DOTALL)


@dataclass(frozen=True)
class Roles:
    """The role of each column of a table."""

    target: str
    features: list[str]  # what the model reads
    sensitive: list[str] | None  # may define a group; None if all features and others may
    others: list[str]  # may define a group, and the model does not read them
    left_out: dict[str, str]  # the remaining columns: "clusters", "ids", "dropped" or "id"
    ids: str | None = None  # says whose row it is

    @property
    def columns(self) -> list[str]:
        """The columns that a prediction needs: features, and others that may define a group."""
        return [*self.features, *self.others]

    def notes(self) -> dict[str, Any]:
        """Return what a model file remembers next to its columns."""
        found = {"not_features": self.others, "left_out": self.left_out, "ids": self.ids}
        return {name: value for name, value in found.items() if value}


@dataclass(frozen=True)
class RequestedRoles:
    """The roles that a user names; the fields are those of :func:`fareg.workflow.fit_file`."""

    target: str
    sensitive: Sequence[str] | None = None
    features: Sequence[str] | None = None
    not_features: Sequence[str] = ()
    drop: Sequence[str] = ()  # the table may lack them
    clusters: str | None = None
    ids: str | None = None  # may be the column of clusters too
    source: str = "the table"  # its name in errors


def assign_roles(
    frame: pd.DataFrame, requested: RequestedRoles, probabilities: Sequence[str] = ()
) -> Roles:
    """Return the roles of all columns of a table; refuse roles that contradict each other.

    ``probabilities`` are columns of class probabilities: all that the model reads, and no groups.

    >>> frame = pd.DataFrame({"age": [40, 40], "sex": ["f", "m"], "y": ["a", "b"]})
    >>> roles = assign_roles(frame, RequestedRoles("y", not_features=["sex"]))
    >>> roles.features, roles.others
    (['age'], ['sex'])
    """
    target, features, sensitive = requested.target, requested.features, requested.sensitive
    clusters, unread = requested.clusters, requested.not_features
    ids = None if requested.ids == clusters else requested.ids
    used = {"a feature": features or (), "not a feature": unread, "sensitive": sensitive or ()}
    by_role: dict[str, Sequence[str]] = {
        "the target": [target],
        "the column of clusters": [*filter(None, [clusters])],
        "the column of ids": [*filter(None, [ids])],
        "dropped": requested.drop,
        "a probability": probabilities,
        **used,
    }
    names = [str(name) for name in frame.columns]
    for columns in by_role.values():
        check_columns(list(columns), [*names, *requested.drop], requested.source)
    for first, second in combinations(by_role, 2):  # a sensitive column may be a feature or not
        both = [name for name in by_role[first] if name in by_role[second]]
        if both and (second != "sensitive" or first not in used):
            raise InvalidInputError(
                f"column {both[0]} cannot be both {first} and {second}; name it once"
            )
    left_out = dict.fromkeys(by_role["the column of clusters"], "clusters")
    left_out |= dict.fromkeys(by_role["the column of ids"], "ids")
    left_out |= dict.fromkeys(requested.drop, "dropped")
    free = [name for name in names if name not in {target, *left_out, *probabilities}]
    named = {name for columns in used.values() for name in columns}
    # An id does harm only if the columns without a named role are used.
    if sensitive is None or (features is None and not probabilities):
        others = [name for name in free if name in named] or probabilities
        unnamed = [name for name in free if name not in named]
        found = id_columns(frame[unnamed], "neither train the model nor define groups", others)
        left_out |= dict.fromkeys(found, "id")
        free = [name for name in free if name not in found]
    reads = [name for name in free if name not in unread] if features is None else features
    reads = probabilities or reads
    if not reads or (probabilities and not free):
        use, besides, fix = "the model could read", "", "leave out fewer"
        if probabilities:
            use, besides = "could define a group", "the probabilities and "
            fix = "add columns that describe the people"
        raise InvalidInputError(
            f"{requested.source} has no column left that {use} besides {besides}the target "
            f"{target}; {fix}"
        )
    limited = None if sensitive is None else list(dict.fromkeys([*sensitive, *unread]))
    groups = free if limited is None else limited
    # Rows with the same id depend on each other, even if nothing reads the column.
    unnamed = [name for name in free if name not in {*unread, *(sensitive or ())}]
    unnamed = [name for name in unnamed if name in {*reads, *groups} or not is_id(frame[name])]
    if note := id_note(frame, unnamed):
        warn(note, LooksLikeIdWarning)
    others = [name for name in free if name in groups and name not in reads]
    return Roles(target, list(dict.fromkeys(reads)), limited, others, left_out, requested.ids)


def id_columns(frame: pd.DataFrame, effect: str, others: Sequence[str] = ()) -> list[str]:
    """Return the columns that are ids, with a warning, unless no other column would be left."""
    found = [str(name) for name, column in frame.items() if is_id(column)]
    if not found or (len(found) == frame.shape[1] and not others):
        return []
    warn(
        f"{', '.join(found)}: different in every row, so taken as ids, which {effect}; name them "
        "as sensitive if they are not ids"
    )
    return found


def is_id(column: pd.Series) -> bool:
    """Return whether a column of text or whole numbers differs in every row.

    >>> is_id(pd.Series([7, 8, 9])), is_id(pd.Series([7, 8, 8])), is_id(pd.Series([0.1, 0.2]))
    (True, False, False)
    """
    numbers = pd.api.types.is_integer_dtype(column.dtype)
    return bool((numbers or _is_text(column)) and column.is_unique)


class LooksLikeIdWarning(FaregWarning):
    """A column that looks like an id has no role."""


def id_note(frame: pd.DataFrame, names: Sequence[str]) -> str | None:
    """Return a note about the columns that look like ids, None if there are none.

    Such a column holds text or whole numbers, each in ten rows or fewer on average. Its name is
    that of an id (``patient_nbr``, ``id``), or its texts hardly repeat. Dates are not ids.
    """
    found = {name: why for name in names if (why := _why_id(frame, name)) is not None}
    listed = "; ".join(f"{quoted(name)} ({why})" for name, why in found.items())
    note = (
        f"treated as an ordinary column although it looks like an id: {listed}; if it identifies "
        "people, name it as clusters, otherwise leave it out"
    )
    return note if found else None


def _why_id(frame: pd.DataFrame, name: str) -> str | None:
    column = frame[name].dropna()
    is_text = _is_text(column)
    if column.empty or not (is_text or _is_whole(column)):
        return None
    n_values = column.nunique()
    if n_values < MIN_VALUES or len(column) > MAX_ROWS_PER_VALUE * n_values:
        return None
    if is_text and DATE.fullmatch(str(column.iloc[0])):
        return None
    if has_id_name(name) or (is_text and n_values > NEARLY_ALL * len(column)):
        return f"{count(n_values)} different values in {rows(len(column))}"
    return None


def has_id_name(name: str) -> bool:
    """Return whether a column is named like one of ids."""
    return ID_WORD.search(CAMEL.sub("_", name).lower()) is not None


def _is_text(column: pd.Series) -> bool:
    return pd.api.types.is_string_dtype(column) or isinstance(column.dtype, pd.CategoricalDtype)


def _is_whole(column: pd.Series) -> bool:
    return column.dtype.kind in "iu" or (column.dtype.kind == "f" and bool((column % 1 == 0).all()))


def labelled_rows(frame: pd.DataFrame, target: str) -> pd.DataFrame:
    """Return the rows that have a label; a warning counts the others."""
    missing = frame[target].isna()
    check_missing(int(missing.sum()), len(frame), target)
    return frame[~missing] if missing.any() else frame


def check_missing(n_missing: int, n_rows: int, target: str) -> None:
    """Warn of rows without a label, which are left out; refuse a target without any label."""
    if n_missing == n_rows:
        raise InvalidInputError(
            f"the target {target} has no label in any of {n_rows} rows; choose another column or "
            "table"
        )
    if n_missing:
        warn(f"{n_missing} of {n_rows} rows have no {target} and are left out")


def check_target(target: pd.Series, *, has_model: bool = False) -> Any:
    """Return the labels; refuse amounts, dates and too few. A given model may know many classes."""
    target = target.infer_objects()  # booleans among missing values are objects
    kind = column_kinds(target.to_frame())[str(target.name)]
    distinct, n = target.nunique(), len(target)
    many = not has_model and distinct > MANY_VALUES
    numbers = target if kind == "number" and target.dtype.kind == "f" else pd.Series(dtype=float)
    fractions = numbers[numbers % 1 != 0]
    wrong = ""
    if distinct < 2:
        wrong = f"has one class only ({target.iloc[0]}); nothing to predict"
    elif n < MIN_ROWS:
        wrong = f"has {n} rows; at least {MIN_ROWS} are needed to train, calibrate and test"
    elif kind == "date" or (many and distinct > n / 2):
        wrong = f"has {distinct} distinct values in {n} rows; {CHOOSE}"
    elif len(fractions):
        wrong = f"holds fractions such as {fractions.iloc[0]}; {CHOOSE}"
    elif kind == "number" and many and n < ROWS_PER_NUMBER * distinct:
        wrong = (
            f"has {distinct} different numbers in {n} rows, which looks like an amount; group its "
            f"values, or write classes as text (such as c{target.iloc[0]:.0f})"
        )
    if wrong:
        raise InvalidInputError(f"the target {target.name} {wrong}")
    if len(numbers):
        if target.abs().max() >= LARGEST_INT:
            return label_texts(target)
        target = target.astype(np.int64)
    if kind == "number" and many:
        warn(
            f"the target {target.name} has {distinct} different numbers and each is taken as a "
            "class of its own; group its values if they are amounts"
        )
    if kind == "number" or target.dtype.kind == "b":
        return target.to_numpy()
    # Convert each class to text once, instead of each row.
    codes, labels = pd.factorize(target)
    return np.asarray(labels.astype(str), dtype=object)[codes]


def check_clusters(column: pd.Series) -> IntArray:
    """Return the cluster number of each row; refuse missing ids and too few different ones."""
    n_missing = int(column.isna().sum())
    if n_missing:
        raise InvalidInputError(
            f"the clusters {column.name} have {n_missing} missing ids in {len(column)} rows; fill "
            "them or drop these rows"
        )
    codes, ids = pd.factorize(column)
    if len(ids) < MIN_CLUSTERS:
        raise InvalidInputError(
            f"the clusters {column.name} have {len(ids)} different id{'s' * (len(ids) != 1)} in "
            f"{len(column)} rows, at least {MIN_CLUSTERS} are needed to train, calibrate and test; "
            "choose a column with more ids, or name no clusters"
        )
    return codes


def check_training_labels(y_train: Any, y: Any) -> None:
    """Refuse training rows of a single class; warn of classes that are rare among them or missing.

    ``y`` holds the labels of all rows: training, calibration and test.
    """
    total = pd.Series(label_texts(y)).value_counts()
    trained = pd.Series(label_texts(y_train)).value_counts().reindex(total.index, fill_value=0)
    none, few = _listed(total[trained == 0]), _listed(trained[(trained > 0) & (trained < RARE)])
    if (trained > 0).sum() < 2:
        raise InvalidInputError(
            f"the training rows have one class only ({trained.idxmax()}); give more rows of {none}"
        )
    if none:
        warn(
            f"labels without a training row, which no set can contain: {none}; their rows count "
            "as not covered: give more of them, or merge these classes with others"
        )
    if few:
        warn(
            f"labels with few training rows, which sets may rarely contain: {few}; the promise is "
            "for all rows together, so look at the coverage of these labels"
        )


def _listed(counts: pd.Series) -> str:
    shown = [f"{label} ({n} row{'s' * (n != 1)})" for label, n in counts[:SHOWN].items()]
    more = len(counts) - SHOWN
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def warn_of_leak(X: pd.DataFrame, y: Any, accuracy: float) -> None:
    """Warn if the model is right on all test rows, and name columns that give the label away."""
    if percent(accuracy) != percent(1.0):
        return
    labels = pd.Series(pd.factorize(np.asarray(y))[0])
    telling = [
        str(name)
        for name, column in canonical(X).reset_index(drop=True).items()
        if column.nunique() <= len(column) / 2  # an id differs in every row and gives nothing away
        and labels.groupby(column, dropna=False).nunique().max() == 1
    ]
    hint = f"such as {', '.join(telling[:SHOWN])}, " if telling else ""
    warn(
        f"the model is right on 100.0% of the {len(labels)} test rows; leave out columns that are "
        f"known only once the label is known, {hint}unless the task is that easy"
    )
