"""Checks of the numbers in a stored estimator, so that it never reads outside its own memory.

``CHECKS`` get a fitted estimator whose attributes have the kinds of ``_shapes``. They raise an
error if the attributes contradict each other where compiled code would follow them unchecked.
scikit-learn follows the node numbers of a tree, for example, because training wrote them; a file
may hold any numbers. Trees are stored as arrays (``AS_ARRAYS``) and made after checks: every child
comes after its parent, so that there are no circles and no way out, and every feature is a column
of the table. ``FINISH`` makes attributes that are not stored: losses and interpolations.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from fareg._validation import require

N_CATEGORIES = 256  # codes of categories in histogram gradient boosting
TREE = "a decision tree"
PREDICTOR = "sklearn.ensemble._hist_gradient_boosting.predictor"
BITSETS = ("binned_left_cat_bitsets", "raw_left_cat_bitsets")
N_WORDS = 8  # words of 32 bits that hold the categories of a node
BOOSTING = ("HistGradientBoostingClassifier", "HistGradientBoostingRegressor", "AnySizeBoosting")


def _check_histograms(model: Any) -> None:
    """Trees of histogram gradient boosting read only existing columns and categories."""
    bins, n_features = model._bin_mapper, model._n_features
    is_categorical = bins.is_categorical_ != 0
    require(is_categorical.shape == (n_features,) == (len(bins.bin_thresholds_),), "the bins")
    for codes in (bins.bin_thresholds_[j] for j in np.flatnonzero(is_categorical)):
        require(((codes >= 0) & (codes < N_CATEGORIES)).all(), "the categories of boosting")
    for tree in (tree for trees in model._predictors for tree in trees):
        inner = tree.nodes[tree.nodes["is_leaf"] == 0]
        position = np.flatnonzero(tree.nodes["is_leaf"] == 0)
        left, right = (inner[side].astype(np.int64) for side in ("left", "right"))
        _check_nodes(position, left, right, inner["feature_idx"], len(tree.nodes), n_features)
        by_category = inner[inner["is_categorical"] != 0]
        require(is_categorical[by_category["feature_idx"]].all(), TREE)
        require((by_category["bitset_idx"] < len(tree.raw_left_cat_bitsets)).all(), TREE)
    if model._preprocessor is not None:
        _check_preprocessor(model._preprocessor, model.n_features_in_)


def _check_preprocessor(columns: Any, n_features: int) -> None:
    """Codes of all categories and then all numbers: as many columns as boosting reads."""
    (first, encoder, mask), (second, numbers, other_mask), *dropped = columns.transformers_
    kinds = [type(step).__name__ for step in (columns, encoder, numbers)]
    require(kinds == ["ColumnTransformer", "OrdinalEncoder", "FunctionTransformer"], "the columns")
    require((first, second) == ("encoder", "numerical"), "the columns")
    require(all(step == "drop" for _, step, _ in dropped), "the columns")
    masks = [np.asarray(mask), np.asarray(other_mask)]
    require(all(m.dtype == bool and m.shape == (n_features,) for m in masks), "the columns")
    require((masks[0] != masks[1]).all(), "the columns")
    require(encoder.n_features_in_ == masks[0].sum() == len(encoder.categories_), "the columns")


def _check_categories(model: Any) -> None:
    """There is a list of categories for each column; numbers ascend, so that search works."""
    require(len(model.categories_) == model.n_features_in_, "categories_")
    for known in model.categories_:
        require(isinstance(known, np.ndarray) and known.ndim == 1 and len(known), "categories_")
        numbers = known[:-1] if known.dtype.kind == "f" and np.isnan(known[-1]) else known
        # Compare neighbours: differences of unsigned or large numbers would wrap.
        ascend = known.dtype.kind in "OU" or (numbers[1:] > numbers[:-1]).all()
        require(ascend, "categories_")


def _check_indicators(model: Any) -> None:
    """The indicators of a row are inside the sparse table that they are written to."""
    _check_categories(model)
    n_columns = len(model.categories_)
    rare = mappings = dropped = [None] * n_columns
    if model._infrequent_enabled:
        rare, mappings = model._infrequent_indices, model._default_to_infrequent_mappings
    if model._drop_idx_after_grouping is not None:
        require(type(model._drop_idx_after_grouping) is np.ndarray, "dropped categories")
        dropped = model._drop_idx_after_grouping.tolist()
    for known, few, codes, drop in zip(model.categories_, rare, mappings, dropped, strict=True):
        n_codes = len(known)
        require((few is None) == (codes is None), "rare categories")
        if few is not None:
            n_codes += 1 - len(few)
            require(few.ndim == codes.ndim == 1 and len(codes) == len(known), "rare categories")
            require(len(few) and ((few >= 0) & (few < len(known))).all(), "rare categories")
            require(((codes >= 0) & (codes < n_codes)).all(), "rare categories")
        require(drop is None or (type(drop) is int and 0 <= drop < n_codes), "dropped ones")
    require(model._n_features_outs == model._compute_n_features_outs(), "the indicators")


def _check_targets(model: Any) -> None:
    """There is a mean per category, for each class."""
    _check_categories(model)
    n_means = 1 if model.target_type_ != "multiclass" else len(model.classes_)
    require(len(model.encodings_) == n_means * len(model.categories_), "encodings_")


def _make_loss(model: Any) -> None:
    """Make the loss of boosting; its inverse link turns sums into probabilities."""
    if hasattr(model, "n_trees_per_iteration_"):
        model._loss = model._get_loss(None)


def _make_interpolation(model: Any) -> None:
    """Make the interpolation between the points of an isotonic regression."""
    if hasattr(model, "X_thresholds_"):
        model._build_f(model.X_thresholds_, model.y_thresholds_)


def tree_arrays(n_features: int, n_outputs: int, state: dict[str, Any]) -> dict[str, Any]:
    """Return the arrays of a compiled tree in this state."""
    require(n_outputs == 1, "the outputs of a tree")
    return {
        "n_features": n_features,
        "depth": state["max_depth"],
        "nodes": _fields(state["nodes"]),
        "values": state["values"],
    }


def _make_tree(arrays: Any) -> Any:
    """Return the compiled tree, with one output, from these arrays."""
    from sklearn.tree._tree import NODE_DTYPE, Tree

    nodes, values = _records(arrays["nodes"], NODE_DTYPE), arrays["values"]
    n_features, depth = arrays["n_features"], arrays["depth"]
    require(all(type(n) is int and 0 <= n < 2**31 for n in (n_features, depth)), TREE)
    require(values.dtype == np.float64 and values.ndim == 3 and values.shape[1] == 1, TREE)
    require(len(nodes) == len(values) >= depth and values.shape[2] > 0, TREE)
    left, right = nodes["left_child"], nodes["right_child"]
    inner = np.flatnonzero(left != -1)  # -1 means that a node is a leaf
    _check_nodes(inner, left[inner], right[inner], nodes["feature"][inner], len(nodes), n_features)
    tree = Tree(n_features, np.array([values.shape[2]], dtype=np.intp), 1)
    state = {"max_depth": depth, "node_count": len(nodes), "nodes": nodes}
    tree.__setstate__({**state, "values": np.ascontiguousarray(values)})
    return tree


def rounds_arrays(rounds: list[list[Any]]) -> dict[str, Any]:
    """Return the rounds of histogram gradient boosting, often thousands of trees, as few arrays."""
    all_trees = [tree for trees in rounds for tree in trees]
    parts = {"nodes": [np.empty(0, import_module(PREDICTOR).PREDICTOR_RECORD_DTYPE)]}
    parts |= {name: [np.empty((0, N_WORDS), np.uint32)] for name in BITSETS}
    wholes = {
        name: np.concatenate([*empty, *(getattr(tree, name) for tree in all_trees)])
        for name, empty in parts.items()
    }
    counts = {
        count: np.array([[len(getattr(tree, name)) for tree in r] for r in rounds], np.int64)
        for count, name in {"n_nodes": "nodes", "n_bitsets": BITSETS[1]}.items()
    }
    return {**counts, **wholes, "nodes": _fields(wholes["nodes"])}


def _make_rounds(arrays: Any) -> list[list[Any]]:
    """Return rounds from these arrays; :func:`_check_histograms` checks them with their model."""
    module = import_module(PREDICTOR)
    n_nodes, n_bitsets = arrays["n_nodes"], arrays["n_bitsets"]
    require(n_nodes.shape == n_bitsets.shape and (n_nodes.ndim == 2 or not n_nodes.size), TREE)
    require((n_nodes > 0).all(), TREE)  # so that there are no more trees than nodes
    wholes = [(_records(arrays["nodes"], module.PREDICTOR_RECORD_DTYPE), n_nodes)]
    for name in BITSETS:
        require(arrays[name].dtype == np.uint32 and arrays[name].shape[1:] == (N_WORDS,), TREE)
        wholes.append((arrays[name], n_bitsets))
    parts = []
    for whole, counts in wholes:
        require(counts.dtype.kind == "i" and (counts >= 0).all(), TREE)
        require((counts <= len(whole)).all() and counts.sum() == len(whole), TREE)
        parts.append(np.split(whole, np.cumsum(counts)[:-1]))
    trees = iter([module.TreePredictor(*arrays) for arrays in zip(*parts, strict=True)])
    return [[next(trees) for _ in counts] for counts in n_nodes]


def _check_nodes(
    node: Any, left: Any, right: Any, feature: Any, n_nodes: int, n_features: int
) -> None:
    require(n_nodes > 0, TREE)
    require(((left > node) & (right > node) & (left < n_nodes) & (right < n_nodes)).all(), TREE)
    require(((feature >= 0) & (feature < n_features)).all(), TREE)


def _fields(records: Any) -> dict[str, Any]:
    return {name: np.ascontiguousarray(records[name]) for name in records.dtype.names}


def _records(fields: Any, dtype: Any) -> Any:
    """Return records of one of scikit-learn's types, from an array for each field."""
    require(isinstance(fields, dict) and set(fields) == set(dtype.names), TREE)
    records = np.zeros(len(fields[dtype.names[0]]), dtype=dtype)
    for name in dtype.names:
        require(fields[name].dtype == dtype[name] and fields[name].shape == records.shape, TREE)
        records[name] = fields[name]
    return records


CHECKS: dict[str, Callable[[Any], None]] = {
    **dict.fromkeys(BOOSTING, _check_histograms),
    "OneHotEncoder": _check_indicators,
    "OrdinalEncoder": _check_categories,
    "TargetEncoder": _check_targets,
}
FINISH: dict[str, Callable[[Any], None]] = {
    **dict.fromkeys((*BOOSTING, "GradientBoostingClassifier"), _make_loss),
    "IsotonicRegression": _make_interpolation,
}
# Attributes of these kinds are stored as arrays: functions to take them apart, and to make them.
AS_ARRAYS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "tree": (lambda t: tree_arrays(t.n_features, t.n_outputs, t.__getstate__()), _make_tree),
    "rounds": (rounds_arrays, _make_rounds),
}
