"""Objects that are stored as the call that makes them, and made anew when they are read.

These are objects whose stored inside would have to be trusted blindly: search trees over neighbours
read memory at stored positions, splines too, and distributions of scipy run a text of theirs as
Python code when their state is restored. Made by their constructor, they are as safe as its
arguments, which are names and numbers.
"""

from __future__ import annotations

import copy
import functools
import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fareg.calibration import require


@dataclass(frozen=True)
class Recipe:
    """A call that makes an object: which kind of object, and the arguments."""

    kind: str
    arguments: dict[str, Any]

    def make(self) -> Any:
        """Return the object."""
        return MAKERS[self.kind](**self.arguments)


def as_recipes(root: Any) -> Any:
    """Return a copy of ``root`` with recipes in place of what they make; itself, if there are none.

    >>> import scipy.stats
    >>> as_recipes({"C": scipy.stats.uniform(0, 2)})["C"].arguments
    {'name': 'uniform', 'args': (0, 2), 'kwds': {}}
    """
    found = [(thing, _recipe(thing)) for thing in reachable(root)]
    replaced = {id(thing): recipe for thing, recipe in found if recipe is not None}
    # deepcopy replaces every object that its memo already knows.
    return copy.deepcopy(root, replaced) if replaced else root


def as_made(root: Any) -> Any:
    """Return a copy of ``root`` with objects in place of their recipes; itself if it has none."""
    recipes = [thing for thing in reachable(root) if isinstance(thing, Recipe)]
    return copy.deepcopy(root, {id(r): r.make() for r in recipes}) if recipes else root


def reachable(root: Any) -> Iterator[Any]:
    """Yield every object that can be reached through attributes and containers, once."""
    seen: set[int] = set()
    stack = [root]
    while stack:
        thing = stack.pop()
        if id(thing) in seen or isinstance(thing, str | bytes | int | float | type):
            continue
        seen.add(id(thing))
        yield thing
        if isinstance(thing, dict):
            stack += list(thing.values())
        elif isinstance(thing, list | tuple | set):
            stack += list(thing)
        elif isinstance(thing, np.ndarray):
            stack += thing.ravel().tolist() if thing.dtype == object else []
        else:
            stack += list(getattr(thing, "__dict__", {}).values())


def _recipe(thing: Any) -> Recipe | None:
    """Return how to make an object, None if it is stored as it is."""
    module = type(thing).__module__
    if _are_boosted(thing):
        return _boosting_recipe(thing)
    if module in ("sklearn.neighbors._kd_tree", "sklearn.neighbors._ball_tree"):
        return _neighbours_recipe(thing)
    if module == "scipy.interpolate._bsplines" and type(thing).__name__ == "BSpline":
        names = ("t", "c", "k", "extrapolate", "axis")
        return Recipe("spline", {name: getattr(thing, name) for name in names})
    if module == "scipy.stats._distn_infrastructure" and hasattr(thing, "dist"):
        arguments = {"name": thing.dist.name, "args": tuple(thing.args), "kwds": dict(thing.kwds)}
        known = type(_distributions().get(thing.dist.name)) is type(thing.dist)
        plain = _are_numbers([*thing.args, *thing.kwds.values()])
        return Recipe("distribution", arguments) if known and plain else None
    return None


def _are_boosted(thing: Any) -> bool:
    """Tell whether an object is the list of rounds of a histogram gradient boosting."""
    if not isinstance(thing, list) or not all(isinstance(one, list) for one in thing):
        return False
    return {type(tree).__module__ for one in thing for tree in one} == {PREDICTOR}


def _boosting_recipe(rounds: list[list[Any]]) -> Recipe:
    trees = [tree for one in rounds for tree in one]
    arrays = {name: np.concatenate([getattr(tree, name) for tree in trees]) for name in TREE}
    n_nodes = np.array([[len(tree.nodes) for tree in one] for one in rounds])
    n_bitsets = np.array([[len(tree.raw_left_cat_bitsets) for tree in one] for one in rounds])
    return Recipe("boosting", {**arrays, "n_nodes": n_nodes, "n_bitsets": n_bitsets})


def _make_boosting(n_nodes: Any, n_bitsets: Any, **arrays: Any) -> Any:
    require(set(arrays) == set(TREE) and n_nodes.shape == n_bitsets.shape, "boosting")
    require(n_nodes.ndim == 2 and n_nodes.dtype.kind == n_bitsets.dtype.kind == "i", "boosting")
    parts = []
    for name, counts in zip(TREE, (n_nodes, n_bitsets, n_bitsets), strict=True):
        whole = (counts >= 0).all() and counts.sum() == len(arrays[name])
        require(bool(whole), "boosting")
        parts.append(np.split(arrays[name], np.cumsum(counts)[:-1]))
    make = importlib.import_module(PREDICTOR).TreePredictor
    trees = iter([make(*own) for own in zip(*parts, strict=True)])
    return [[next(trees) for _ in one] for one in n_nodes]


def _neighbours_recipe(tree: Any) -> Recipe | None:
    data, leaf_size, metric, weights = (tree.__getstate__()[j] for j in (0, 4, 11, 12))
    name = type(metric).__name__.removesuffix("Distance64").lower()
    if name not in METRICS or weights is not None:
        return None
    p, vector, matrix = metric.__getstate__()
    known = {"p": p, "V": vector, "VI": matrix, "w": vector if len(vector) else None}
    parameters = {key: known[key] for key in METRICS[name]}
    arguments = {"data": data, "leaf_size": leaf_size, "metric": name, "parameters": parameters}
    return Recipe(type(tree).__name__, arguments)


# The thousands of small arrays in the trees of gradient boosting are stored as three large ones.
PREDICTOR = "sklearn.ensemble._hist_gradient_boosting.predictor"
TREE = ("nodes", "binned_left_cat_bitsets", "raw_left_cat_bitsets")

# The metrics of neighbours, with the parameters that each takes.
METRICS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("euclidean", "manhattan", "chebyshev", "hamming", "canberra"), ()),
    **dict.fromkeys(("braycurtis", "haversine", "jaccard", "dice", "rogerstanimoto"), ()),
    "minkowski": ("p", "w"),
    "seuclidean": ("V",),
    "mahalanobis": ("VI",),
}


def _make_neighbours(
    kind: str, data: Any, leaf_size: int, metric: str, parameters: dict[str, Any]
) -> Any:
    from sklearn import neighbors

    require(metric in METRICS and set(parameters) == set(METRICS[metric]), "a metric of neighbours")
    return getattr(neighbors, kind)(data, leaf_size=leaf_size, metric=metric, **parameters)


def _make_distribution(name: str, args: tuple[Any, ...], kwds: dict[str, Any]) -> Any:
    require(_are_numbers([*args, *kwds.values()]), "a parameter of a distribution")
    return _distributions()[name](*args, **kwds)


@functools.cache
def _distributions() -> dict[str, Any]:
    import scipy.stats

    kinds = scipy.stats.rv_continuous | scipy.stats.rv_discrete
    return {name: thing for name, thing in vars(scipy.stats).items() if isinstance(thing, kinds)}


def _are_numbers(values: list[Any]) -> bool:
    return all(isinstance(value, int | float | np.number) for value in values)


MAKERS: dict[str, Callable[..., Any]] = {
    "KDTree": functools.partial(_make_neighbours, "KDTree"),
    "BallTree": functools.partial(_make_neighbours, "BallTree"),
    "boosting": _make_boosting,
    # The constructor checks that there are as many coefficients as the knots ask for.
    "spline": lambda **known: importlib.import_module("scipy.interpolate").BSpline(**known),
    "distribution": _make_distribution,
}
