"""A group in words: a small decision tree on the membership, read out as a short rule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from math import comb, prod
from typing import Any

import numpy as np
import pandas as pd
from sklearn import config_context
from sklearn.tree import DecisionTreeClassifier

from fareg._columns import canonical
from fareg._levels import LevelCoding, joint_codes
from fareg._validation import BoolArray, FloatArray, IntArray, InvalidInputError, check_same_length
from fareg.groups._conditions import Alternatives, AskedRows, Condition, Part, distinct_numbers
from fareg.groups._folds import some_rows

MAX_LEAVES = 8
CLOSE = 0.005  # the smaller tree is taken if its agreement is worse by at most this
MAX_LEAVES_OF_FEW = 16  # leaves of a tree that reads one to three features only
MAX_CELLS = 64  # joint cells that these features may have
MAX_SUBSETS = 500  # pairs or triples of features that are tried; if there are more, none is
MAX_LEVELS = 50  # levels of a text column that a rule may name
MAX_PARTS = 4  # alternatives that are rules of their own
MAX_ROWS = 20_000


@dataclass(frozen=True)
class Rule:
    """A group in words, and the rows that these words mean.

    Attributes
    ----------
    text : str
        The words.
    features : tuple of str
        The features that the words name.
    fidelity : float
        Share of the rows on which the words and the group agree.

    Examples
    --------
    >>> columns = pd.DataFrame({"Color": ["Red", "Blue"] * 20, "Age": range(40)})
    >>> rule = distil_rule(columns, (columns["Color"] == "Red").to_numpy())
    >>> rule.text, rule.features
    ('Color=Red', ('Color',))
    >>> rule.inside(pd.DataFrame({"Color": ["Blue", "Red"]})).tolist()
    [False, True]
    """

    text: str
    features: tuple[str, ...]
    fidelity: float
    alternatives: Alternatives = ()

    def inside(self, columns: pd.DataFrame) -> BoolArray:
        """Tell which rows of a pandas frame the words describe; columns are found by name."""
        absent = [name for name in self.features if name not in columns]
        if absent:
            raise InvalidInputError(
                f"the rule {self.text!r} needs column {absent[0]}, got columns "
                f"{', '.join(map(str, columns.columns))}"
            )
        return AskedRows(columns).inside(self.alternatives)

    def parts(self) -> list[Rule]:
        """Return each alternative as a rule of its own, if there are several but few."""
        several = 1 < len(self.alternatives) <= MAX_PARTS
        return [self.part((own,)) for own in self.alternatives] if several else []

    def part(self, alternatives: Alternatives) -> Rule:
        """Return the rule with other alternatives, which ask about the same features or fewer."""
        if alternatives == self.alternatives:
            return self
        return Rule.of(alternatives, self.features, self.fidelity)

    @classmethod
    def of(cls, alternatives: Alternatives, columns: tuple[str, ...], fidelity: float) -> Rule:
        """Put alternatives into words; they name features in the order of the columns."""
        named = {condition.feature for conditions in alternatives for condition in conditions}
        features = tuple(name for name in columns if name in named)
        words = [_in_words(conditions) for conditions in alternatives]
        if len(words) > 1:
            words = [f"({word})" if " and " in word else word for word in words]
        return cls(" or ".join(words) or "no short rule", features, fidelity, alternatives)


def distil_rule(columns: pd.DataFrame, inside: BoolArray) -> Rule:
    """Describe a group by the smallest decision tree that agrees with it as well as a big one.

    ``inside`` marks the group; columns that hold, or as canonical ones held, booleans and dates are
    described as such.

    >>> columns = pd.DataFrame({"Color": ["Red", "Red", "Blue", "Blue"] * 10,
    ...                         "Gender": ["Female", "Male"] * 20})
    >>> inside = (columns["Color"] == "Red") == (columns["Gender"] == "Female")
    >>> distil_rule(columns, inside.to_numpy()).text
    '(Color=Blue and Gender=Male) or (Color=Red and Gender=Female)'
    """
    check_same_length(columns=columns, inside=inside)
    if inside.all() or not inside.any():
        return Rule("everyone", (), 1.0, ((),)) if inside.all() else Rule("no one", (), 1.0)
    rows = some_rows(len(columns), MAX_ROWS)
    seen = canonical(columns.iloc[rows])
    x, inputs = _design(seen)
    tree = _best_tree(x, inputs, seen, inside[rows])
    whole = {str(name): Part.whole(column) for name, column in seen.items()}
    paths = _simplified(list(_positive_paths(tree.tree_, inputs, whole)))
    alternatives = [
        # a column of which everything passes is not mentioned
        tuple(part.condition(seen[name]) for name, part in path.items() if part != whole[name])
        for path in paths
    ]
    rule = Rule.of(tuple(sorted(alternatives, key=_in_words)), tuple(map(str, columns)), 1.0)
    return replace(rule, fidelity=float((rule.inside(columns) == inside).mean()))


Inputs = list[tuple[str, str, str]]  # column, one of "level", "number", "missing", and the level


def _design(columns: pd.DataFrame) -> tuple[FloatArray, Inputs]:
    """Return the inputs of the tree, and what each stands for."""
    parts: list[Any] = []
    inputs: Inputs = []
    for name, column in columns.items():
        if column.dtype == object:
            for level in column.value_counts().index[:MAX_LEVELS]:
                parts.append((column == level).to_numpy())
                inputs.append((str(name), "level", str(level)))
            if column.isna().any():
                parts.append(column.isna().to_numpy())
                inputs.append((str(name), "missing", ""))
        else:
            # Ranks, because trees read single precision, in which large numbers become equal.
            ranks = np.searchsorted(distinct_numbers(column), column)
            finite = np.isfinite(column.to_numpy())
            parts.append(np.where(finite, ranks, np.nan if finite.any() else 0.0))
            inputs.append((str(name), "number", ""))
    return np.column_stack(parts).astype(np.float64), inputs


def _best_tree(
    x: FloatArray, inputs: Inputs, columns: pd.DataFrame, inside: BoolArray
) -> DecisionTreeClassifier:
    """Return a small tree, grown larger on one to three features if that agrees better.

    A tree chooses its splits one at a time, so it misses a group that only several features
    together tell, such as an odd number of three flags. A list of levels takes a leaf for each.
    """
    best, agreement = _smallest_tree(x, inside, MAX_LEAVES)
    if agreement >= 1 - CLOSE:
        return best
    for names in _telling_subsets(columns, inside, agreement + CLOSE):
        reads = np.array([name in names for name, _, _ in inputs])
        tree, reached = _smallest_tree(np.where(reads, x, 0.0), inside, MAX_LEAVES_OF_FEW)
        if reached > agreement + CLOSE:
            best, agreement = tree, reached
    return best


def _telling_subsets(columns: pd.DataFrame, inside: BoolArray, least: float) -> list[set[str]]:
    """Return the feature, the pair and the triple whose joint cells tell the group best.

    A subset counts if its cells agree with the group by more than ``least`` in balanced accuracy.
    """
    coding = LevelCoding.learn(columns)
    codes, sizes = coding.codes(columns), coding.n_levels
    found = []
    for size in (1, 2, 3):
        if comb(len(sizes), size) > MAX_SUBSETS:
            break
        subsets = combinations(range(len(sizes)), size)
        small = [s for s in subsets if prod(sizes[j] for j in s) <= MAX_CELLS]
        worth = [_cell_agreement(codes[:, s], [sizes[j] for j in s], inside) for s in small]
        if worth and max(worth) > least:
            found.append({coding.levels[j].name for j in small[int(np.argmax(worth))]})
    return found


def _cell_agreement(codes: IntArray, sizes: list[int], inside: BoolArray) -> float:
    """Return the balanced accuracy of the best way to call joint cells inside or outside."""
    cells = joint_codes(list(codes.T), sizes)
    shares = [np.bincount(cells, rows) / rows.sum() for rows in (inside, ~inside)]
    return float(np.maximum(*shares).sum()) / 2


def _smallest_tree(
    x: FloatArray, inside: BoolArray, max_leaves: int
) -> tuple[DecisionTreeClassifier, float]:
    """Return the smallest tree within ``CLOSE`` of the best balanced accuracy, and its accuracy."""
    min_rows = max(1, len(x) // 200)
    balanced = 0.5 / np.where(inside, inside.mean(), (~inside).mean())
    trees: list[DecisionTreeClassifier] = []
    agreement: list[float] = []
    with config_context(skip_parameter_validation=True):
        while len(trees) < max_leaves - 1 and max(agreement, default=0.0) < 1 - CLOSE:
            tree = DecisionTreeClassifier(
                max_leaf_nodes=len(trees) + 2, min_samples_leaf=min_rows, random_state=0
            ).fit(x, inside, sample_weight=balanced)
            trees.append(tree)
            agreement.append(float((balanced * (tree.predict(x) == inside)).mean()))
    chosen = next(i for i, a in enumerate(agreement) if a >= max(agreement) - CLOSE)
    return trees[chosen], agreement[chosen]


def _positive_paths(tree: Any, inputs: Inputs, whole: dict[str, Part]) -> Iterator[dict[str, Part]]:
    """Yield one conjunction per leaf inside the group: a part of every column."""
    stack = [(0, dict(whole))]
    while stack:
        node, path = stack.pop()
        if tree.children_left[node] < 0:
            if tree.value[node].ravel().argmax() == 1:
                yield path
            continue
        name, kind, level = inputs[tree.feature[node]]
        if kind == "missing":
            sides = path[name].split_missing()
        elif kind == "level":
            sides = path[name].split_level(level)
        else:
            threshold = float(tree.threshold[node])
            sides = path[name].split_number(threshold, bool(tree.missing_go_to_left[node]))
        children = (tree.children_left[node], tree.children_right[node])
        stack += [(c, {**path, name: side}) for c, side in zip(children, sides, strict=True)]


def _simplified(paths: list[dict[str, Part]]) -> list[dict[str, Part]]:
    """Merge conjunctions that differ in one feature only, as long as there are any."""
    for i, first in enumerate(paths):
        for j in range(i + 1, len(paths)):
            second = paths[j]
            differing = [name for name in first if first[name] != second[name]]
            if len(differing) != 1:
                continue
            (name,) = differing
            union = first[name].merged(second[name])
            if union is not None:
                rest = [path for k, path in enumerate(paths) if k not in (i, j)]
                return _simplified([*rest, {**first, name: union}])
    return paths


def _in_words(conditions: tuple[Condition, ...]) -> str:
    return " and ".join(condition.in_words() for condition in conditions) or "everyone"
