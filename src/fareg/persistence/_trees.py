"""Decision trees as arrays, and the checks that keep a prediction inside them.

scikit-learn follows the node numbers of a tree unchecked, because training wrote them; a file may
hold any numbers. Trees are made here from arrays, after checks that every child comes after its
parent (so there are no circles and no way out) and that every feature is one of the table's.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from fareg._validation import require

TREE = "a decision tree"
PREDICTOR = "sklearn.ensemble._hist_gradient_boosting.predictor"
BITSETS = ("binned_left_cat_bitsets", "raw_left_cat_bitsets")
N_WORDS = 8  # of 32 bits, in which the categories of a node are bits


def tree_arrays(tree: Any) -> dict[str, Any]:
    """Return the arrays of a compiled tree."""
    state = tree.__getstate__()
    require(tree.n_outputs == 1, "the outputs of a tree")
    return {
        "n_features": int(tree.n_features),
        "depth": int(state["max_depth"]),
        "nodes": record_fields(state["nodes"]),
        "values": state["values"],
    }


def make_tree(arrays: Any) -> Any:
    """Return the compiled tree of one output that has these arrays."""
    from sklearn.tree._tree import NODE_DTYPE, Tree

    nodes, values = _records(arrays["nodes"], NODE_DTYPE), arrays["values"]
    n_features, depth = arrays["n_features"], arrays["depth"]
    require(_is_count(n_features) and _is_count(depth) and depth <= len(nodes), TREE)
    require(values.dtype == np.float64 and values.ndim == 3 and values.shape[1] == 1, TREE)
    require(0 < len(nodes) == len(values) and values.shape[2] > 0, TREE)
    left, right = nodes["left_child"], nodes["right_child"]
    inner = np.flatnonzero(left != -1)  # -1 means that a node is a leaf
    _check_nodes(inner, left[inner], right[inner], nodes["feature"][inner], len(nodes), n_features)
    tree = Tree(n_features, np.array([values.shape[2]], dtype=np.intp), 1)
    state = {"max_depth": depth, "node_count": len(nodes), "nodes": nodes}
    tree.__setstate__({**state, "values": np.ascontiguousarray(values)})
    return tree


def rounds_arrays(rounds: list[list[Any]]) -> dict[str, Any]:
    """Return the rounds of histogram gradient boosting as a few large arrays.

    There may be thousands of trees, whose own arrays are small.
    """
    trees = [tree for one in rounds for tree in one]
    counts = {"n_nodes": [[len(tree.nodes) for tree in one] for one in rounds]}
    counts["n_bitsets"] = [[len(tree.raw_left_cat_bitsets) for tree in one] for one in rounds]
    nodes = [tree.nodes for tree in trees] or [np.empty(0, _node_dtype())]
    empty = [np.empty((0, N_WORDS), np.uint32)]
    return {
        **{name: np.array(count, dtype=np.int64) for name, count in counts.items()},
        "nodes": record_fields(np.concatenate(nodes)),
        **{name: np.concatenate([getattr(t, name) for t in trees] or empty) for name in BITSETS},
    }


def make_rounds(arrays: Any) -> list[list[Any]]:
    """Return the rounds that have these arrays; :func:`check_rounds` needs their owner."""
    n_nodes, n_bitsets = arrays["n_nodes"], arrays["n_bitsets"]
    require(n_nodes.shape == n_bitsets.shape and (n_nodes.ndim == 2 or not n_nodes.size), TREE)
    require((n_nodes > 0).all(), TREE)  # so that there are no more trees than nodes
    wholes = [(_records(arrays["nodes"], _node_dtype()), n_nodes)]
    for name in BITSETS:
        require(arrays[name].dtype == np.uint32 and arrays[name].shape[1:] == (N_WORDS,), TREE)
        wholes.append((arrays[name], n_bitsets))
    parts = []
    for whole, counts in wholes:
        require(counts.dtype.kind == "i" and (counts >= 0).all(), TREE)
        require((counts <= len(whole)).all() and counts.sum() == len(whole), TREE)
        parts.append(np.split(whole, np.cumsum(counts)[:-1]))
    predictor = importlib.import_module(PREDICTOR).TreePredictor
    trees = iter([predictor(*own) for own in zip(*parts, strict=True)])
    return [[next(trees) for _ in one] for one in n_nodes]


def check_rounds(rounds: list[list[Any]], n_features: int, is_categorical: Any) -> None:
    """Refuse trees of histogram gradient boosting that would leave the table or their memory."""
    for tree in (tree for one in rounds for tree in one):
        nodes = tree.nodes
        inner = np.flatnonzero(nodes["is_leaf"] == 0)
        feature = nodes["feature_idx"][inner]
        left, right = (nodes[side][inner].astype(np.int64) for side in ("left", "right"))
        require(len(nodes) > 0, TREE)
        _check_nodes(inner, left, right, feature, len(nodes), n_features)
        by_category = nodes["is_categorical"][inner] != 0
        require(is_categorical[feature[by_category]].all(), TREE)
        bitsets = nodes["bitset_idx"][inner][by_category]
        require((bitsets < len(tree.raw_left_cat_bitsets)).all(), TREE)


def _check_nodes(
    node: Any, left: Any, right: Any, feature: Any, n_nodes: int, n_features: int
) -> None:
    require(((left > node) & (right > node) & (left < n_nodes) & (right < n_nodes)).all(), TREE)
    require(((feature >= 0) & (feature < n_features)).all(), TREE)


def record_fields(records: Any) -> dict[str, Any]:
    """Return the fields of records as an array each."""
    return {name: np.ascontiguousarray(records[name]) for name in records.dtype.names}


def _records(fields: Any, dtype: Any) -> Any:
    """Return records of a type of scikit-learn's, from an array for each of its fields."""
    require(isinstance(fields, dict) and set(fields) == set(dtype.names), TREE)
    records = np.zeros(len(fields[dtype.names[0]]), dtype=dtype)
    for name in dtype.names:
        require(fields[name].dtype == dtype[name] and fields[name].shape == records.shape, TREE)
        records[name] = fields[name]
    return records


def _node_dtype() -> Any:
    return importlib.import_module(PREDICTOR).PREDICTOR_RECORD_DTYPE


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**31
