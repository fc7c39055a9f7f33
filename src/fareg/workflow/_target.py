"""The columns of labels and clusters: what may be one, and what looks wrong about it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from fareg._columns import canonical
from fareg._validation import IntArray, InvalidInputError, warn
from fareg._words import percent
from fareg.workflow._labels import LARGEST_INT, label_texts
from fareg.workflow._values import column_kinds

MIN_ROWS = 20
MIN_CLUSTERS = 3  # each is in one part of the split
MANY_VALUES = 20  # more whole numbers than these look like amounts
ROWS_PER_NUMBER = 10  # such numbers are refused if each repeats more rarely than this
RARE = 10  # training rows below which a class is hardly learned
SHOWN = 5
CHOOSE = "choose a column of classes, or group its values"


def labelled_rows(frame: pd.DataFrame, target: str) -> pd.DataFrame:
    """Return the rows that have a label; a warning names the others."""
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
    """Return labels, after checks that they are labels; a model that is given knows its classes."""
    target = target.infer_objects()  # booleans among which there were gaps are objects
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
            f"values, or write them as text (such as c{target.iloc[0]:.0f}) if they are classes"
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
    # Each class is turned into text once, and not each row.
    codes, labels = pd.factorize(target)
    return np.asarray(labels.astype(str), dtype=object)[codes]


def check_clusters(column: pd.Series) -> IntArray:
    """Return the number of each row's cluster, after checks that no id is missing or all alone."""
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
    """Refuse training rows of a single class; warn of classes that they hold rarely or not at all.

    ``y`` are the labels of all rows, to train, to calibrate and to test.
    """
    total = pd.Series(label_texts(y)).value_counts()
    trained = pd.Series(label_texts(y_train)).value_counts().reindex(total.index, fill_value=0)
    none, few = _listed(total[trained == 0]), _listed(trained[(trained > 0) & (trained < RARE)])
    if (trained > 0).sum() < 2:
        raise InvalidInputError(
            f"the training rows hold one class only ({trained.idxmax()}); give more rows of {none}"
        )
    if none:
        warn(
            f"labels without a training row, which no set can contain: {none}; their rows count "
            "as not covered: give more of them, or join these classes with others"
        )
    if few:
        warn(
            f"labels with few training rows, which sets may rarely contain: {few}; the promise is "
            "about all rows together, so look at the coverage of these labels"
        )


def _listed(counts: pd.Series) -> str:
    shown = [f"{label} ({n} row{'s' * (n != 1)})" for label, n in counts[:SHOWN].items()]
    more = len(counts) - SHOWN
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def warn_of_leak(X: pd.DataFrame, y: Any, accuracy: float) -> None:
    """Warn when the model is right on all test rows, with the columns that give the label away."""
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
        f"known only once the label is, {hint}unless the task is that easy"
    )
