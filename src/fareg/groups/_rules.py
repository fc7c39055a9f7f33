"""A group in words: a small decision tree on the membership, read out as a short rule."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import balanced_accuracy_score
from sklearn.tree import DecisionTreeClassifier

from fareg._encoding import LARGEST
from fareg._frames import MAX_DISCRETE, held, in_words
from fareg._validation import BoolArray, FloatArray, check_same_length

MAX_LEAVES = 8
CLOSE = 0.005  # a tree that agrees so much worse may be the smaller one
MAX_LEVELS = 50  # levels of a text column that a rule may name
MAX_ROWS = 20_000
MISSING = "missing"
DAY = 86_400  # seconds


@dataclass(frozen=True)
class Rule:
    """A group in words, the features it names, and how well it agrees with the group."""

    text: str
    features: tuple[str, ...]
    fidelity: float  # share of rows on which rule and group agree


@dataclass(frozen=True)
class _Condition:
    """What one conjunction asks of one feature: some levels of a text, an interval of a number."""

    levels: frozenset[str] | None = None
    low: float = -np.inf
    high: float = np.inf
    missing: bool | None = None

    def merged(self, other: _Condition) -> _Condition | None:
        """Return the union of two conditions if it is one condition."""
        if self.levels is not None and other.levels is not None:
            return replace(self, levels=self.levels | other.levels)
        if self.levels is None and other.levels is None and self.missing == other.missing:
            first, second = sorted((self, other), key=lambda c: (c.low, c.high))
            if first.high >= second.low:
                return replace(first, high=max(first.high, second.high))
        return None


def distil_rule(columns: pd.DataFrame, inside: BoolArray) -> Rule:
    """Describe a group by the smallest decision tree that agrees with it as well as a big one.

    Parameters
    ----------
    columns : DataFrame of shape (n, n_features)
        Canonical columns; those that held booleans and dates are described as such.
    inside : bool ndarray of shape (n,)
        Membership in the group.

    Returns
    -------
    Rule

    Examples
    --------
    >>> import pandas as pd
    >>> columns = pd.DataFrame({"Color": ["Red", "Red", "Blue", "Blue"] * 10,
    ...                         "Gender": ["Female", "Male"] * 20}, dtype=object)
    >>> inside = (columns["Color"] == "Red") == (columns["Gender"] == "Female")
    >>> distil_rule(columns, inside.to_numpy()).text
    '(Color=Blue and Gender=Male) or (Color=Red and Gender=Female)'
    """
    check_same_length(columns=columns, inside=inside)
    if inside.all() or not inside.any():
        return Rule("everyone" if inside.all() else "no one", (), 1.0)
    if len(columns) > MAX_ROWS:
        rows = np.random.default_rng(0).choice(len(columns), MAX_ROWS, replace=False)
        columns, inside = columns.iloc[rows], inside[rows]
    x, inputs = _design(columns)
    tree = _smallest_tree(x, inside)
    everything = {str(name): _everything(columns[name]) for name in columns}
    conjunctions = _simplified(list(_positive_paths(tree.tree_, inputs, everything)))
    parts = sorted(_in_words(conjunction, everything, columns) for conjunction in conjunctions)
    if len(parts) > 1:
        parts = [f"({part})" if " and " in part else part for part in parts]
    named = {name for c in conjunctions for name in c if c[name] != everything[name]}
    return Rule(
        text=" or ".join(parts) or "no short rule",
        features=tuple(str(name) for name in columns if name in named),
        fidelity=float((tree.predict(x) == inside).mean()),
    )


def _design(columns: pd.DataFrame) -> tuple[FloatArray, list[tuple[str, str | None]]]:
    """Return inputs of the tree and what each stands for: (column, level), level None: a number."""
    parts: list[Any] = []
    inputs: list[tuple[str, str | None]] = []
    for name, column in columns.items():
        absent = column.isna().to_numpy()
        if column.dtype == object:
            for level in column.value_counts().index[:MAX_LEVELS]:
                parts.append((column == level).to_numpy())
                inputs.append((str(name), str(level)))
        else:
            finite = column.where(np.isfinite(column)).clip(-LARGEST, LARGEST)
            parts.append(finite.fillna(finite.median()).fillna(0).to_numpy())
            inputs.append((str(name), None))
        if absent.any():
            parts.append(absent)
            inputs.append((str(name), MISSING))
    return np.column_stack(parts).astype(np.float64), inputs


def _smallest_tree(x: FloatArray, inside: BoolArray) -> DecisionTreeClassifier:
    """Return the tree of fewest leaves within ``CLOSE`` of the best balanced accuracy."""
    min_rows = max(1, len(x) // 200)
    trees: list[DecisionTreeClassifier] = []
    agreement: list[float] = []
    while len(trees) < MAX_LEAVES - 1 and max(agreement, default=0.0) < 1 - CLOSE:
        tree = DecisionTreeClassifier(
            max_leaf_nodes=len(trees) + 2,
            min_samples_leaf=min_rows,
            class_weight="balanced",
            random_state=0,
        ).fit(x, inside)
        trees.append(tree)
        agreement.append(balanced_accuracy_score(inside, tree.predict(x)))
    return next(t for t, a in zip(trees, agreement, strict=True) if a >= max(agreement) - CLOSE)


def _everything(column: pd.Series) -> _Condition:
    if column.dtype != object:
        return _Condition()
    levels = {str(value) for value in column.dropna().unique()}
    return _Condition(levels=frozenset(levels | ({MISSING} if column.isna().any() else set())))


def _positive_paths(tree: Any, inputs: list[tuple[str, str | None]], everything: Any) -> Any:
    """Yield one conjunction per leaf inside the group: a dict of conditions by column."""
    stack = [(0, dict(everything))]
    while stack:
        node, path = stack.pop()
        if tree.children_left[node] < 0:
            if tree.value[node].ravel().argmax() == 1:
                yield path
            continue
        name, level = inputs[tree.feature[node]]
        sides = _split(path[name], level, float(tree.threshold[node]))
        children = (tree.children_left[node], tree.children_right[node])
        stack += [(c, {**path, name: side}) for c, side in zip(children, sides, strict=True)]


def _split(c: _Condition, level: str | None, threshold: float) -> tuple[_Condition, _Condition]:
    if c.levels is not None and level is not None:
        return replace(c, levels=c.levels - {level}), replace(c, levels=c.levels & {level})
    if level is not None:
        return replace(c, missing=False), replace(c, missing=True)
    return replace(c, high=min(c.high, threshold)), replace(c, low=max(c.low, threshold))


def _simplified(conjunctions: list[dict[str, _Condition]]) -> list[dict[str, _Condition]]:
    """Merge conjunctions that differ in one feature only, as long as there are any."""
    for i, first in enumerate(conjunctions):
        for j in range(i + 1, len(conjunctions)):
            second = conjunctions[j]
            differing = [name for name in first if first[name] != second[name]]
            if len(differing) != 1:
                continue
            (name,) = differing
            union = first[name].merged(second[name])
            if union is not None:
                rest = [c for k, c in enumerate(conjunctions) if k not in (i, j)]
                return _simplified([*rest, {**first, name: union}])
    return conjunctions


def _in_words(
    conjunction: dict[str, _Condition], everything: dict[str, _Condition], columns: pd.DataFrame
) -> str:
    words = [
        _condition_in_words(name, condition, everything[name], columns[name])
        for name, condition in conjunction.items()
        if condition != everything[name]
    ]
    return " and ".join(words) or "everyone"


def _condition_in_words(name: str, c: _Condition, all_of_it: _Condition, column: pd.Series) -> str:
    if c.levels is not None and all_of_it.levels is not None:
        excluded = all_of_it.levels - c.levels
        if len(c.levels) <= max(1, len(excluded)):
            return _levels_in_words(name, c.levels, "=", "in")
        return _levels_in_words(name, excluded, " is not ", "not in")
    if c.missing:
        return f"{name} {MISSING}"
    if np.isinf(c.low) and np.isinf(c.high):
        return f"{name} not {MISSING}"
    return _interval_in_words(name, c, np.unique(column[np.isfinite(column)]), held(column))


def _interval_in_words(name: str, c: _Condition, values: FloatArray, kind: str | None) -> str:
    """Describe an interval of a column with these distinct values: ``x=1`` if it holds only 1."""
    inside = values[(c.low < values) & (values <= c.high)]
    if len(inside) == 1 and len(values) <= MAX_DISCRETE and (values % 1 == 0).all():
        return f"{name}={in_words(inside[0], kind)}"
    if kind == "date":
        start, end = (_date(t, values) if np.isfinite(t) else None for t in (c.low, c.high))
        if start is None:
            return f"{name} before {end}"
        return f"{name} from {start} " + ("on" if end is None else f"to before {end}")
    if np.isfinite(c.low) and np.isfinite(c.high):
        return f"{_number(c.low)} < {name} <= {_number(c.high)}"
    if np.isfinite(c.low):
        return f"{name} > {_number(c.low)}"
    return f"{name} <= {_number(c.high)}"


def _date(threshold: float, values: FloatArray) -> str:
    """Write the next midnight if it parts the values like the threshold, else the next value."""
    midnight = (threshold // DAY + 1) * DAY
    return in_words(values[values > threshold].min(initial=midnight), "date")


def _number(value: float) -> str:
    """Write four significant digits, and large numbers without an exponent."""
    return f"{value:.0f}" if 1e4 <= abs(value) < 1e12 else f"{value:.4g}"


def _levels_in_words(name: str, levels: frozenset[str], one: str, many: str) -> str:
    if len(levels) == 1:
        return f"{name}{one}{next(iter(levels))}"
    return f"{name} {many} {{{', '.join(sorted(levels))}}}"
