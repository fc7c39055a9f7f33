"""What must hold between the numbers of a stored estimator, so that it reads only its own memory.

A ``check`` takes a fitted estimator whose attributes have the kinds of ``_shapes``, and raises an
error if they contradict each other where compiled code would follow them unchecked. scikit-learn
follows the node numbers of a tree so, because training wrote them; a file may hold any numbers.
Trees are made here from arrays, after checks that every child comes after its parent (so there are
no circles and no way out) and that every feature is one of the table's. The other functions whose
names begin with ``make`` make what follows from other attributes and is not stored: losses,
interpolations.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from fareg._validation import require

N_CATEGORIES = 256  # codes of categories that histogram gradient boosting has bits for
TREE = "a decision tree"
PREDICTOR = "sklearn.ensemble._hist_gradient_boosting.predictor"
BITSETS = ("binned_left_cat_bitsets", "raw_left_cat_bitsets")
N_WORDS = 8  # of 32 bits, in which the categories of a node are bits


def check_histograms(model: Any) -> None:
    """Trees of histogram gradient boosting read the columns and categories that there are."""
    bins, n_features = model._bin_mapper, model._n_features
    is_categorical = bins.is_categorical_ != 0
    require(is_categorical.shape == (n_features,) == (len(bins.bin_thresholds_),), "the bins")
    for codes in (bins.bin_thresholds_[j] for j in np.flatnonzero(is_categorical)):
        require(((codes >= 0) & (codes < N_CATEGORIES)).all(), "the categories of boosting")
    for tree in (tree for one in model._predictors for tree in one):
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
    if model._preprocessor is not None:
        _check_preprocessor(model._preprocessor, model)


def _check_preprocessor(columns: Any, model: Any) -> None:
    """The codes of all categories and then all numbers: as many columns as boosting reads."""
    (first, encoder, mask), (second, numbers, others), *rest = columns.transformers_
    kinds = [type(step).__name__ for step in (columns, encoder, numbers)]
    require(kinds == ["ColumnTransformer", "OrdinalEncoder", "FunctionTransformer"], "the columns")
    require((first, second) == ("encoder", "numerical"), "the columns")
    require(all(how == "drop" for _, how, _ in rest), "the columns")
    masks = [np.asarray(mask), np.asarray(others)]
    require(all(m.dtype == bool and m.shape == (model.n_features_in_,) for m in masks), "columns")
    require((masks[0] != masks[1]).all(), "the columns")
    require(encoder.n_features_in_ == masks[0].sum() == len(encoder.categories_), "the columns")


def check_categories(model: Any) -> None:
    """As many lists of categories as columns; numbers ascend, because they are searched."""
    require(len(model.categories_) == model.n_features_in_, "categories_")
    for known in model.categories_:
        require(isinstance(known, np.ndarray) and known.ndim == 1 and len(known), "categories_")
        numbers = known[:-1] if known.dtype.kind == "f" and np.isnan(known[-1]) else known
        # Differences of unsigned and of large numbers would wrap, so neighbours are compared.
        ascend = known.dtype.kind in "OU" or (numbers[1:] > numbers[:-1]).all()
        require(ascend, "categories_")


def check_indicators(model: Any) -> None:
    """The indicators of a row lie inside the sparse table that they are written to."""
    check_categories(model)
    n_columns = len(model.categories_)
    rare = codes = dropped = [None] * n_columns
    if model._infrequent_enabled:
        rare, codes = model._infrequent_indices, model._default_to_infrequent_mappings
    if model._drop_idx_after_grouping is not None:
        require(type(model._drop_idx_after_grouping) is np.ndarray, "dropped categories")
        dropped = model._drop_idx_after_grouping.tolist()
    for known, few, own, which in zip(model.categories_, rare, codes, dropped, strict=True):
        n_codes = len(known)
        require((few is None) == (own is None), "rare categories")
        if few is not None:
            n_codes += 1 - len(few)
            require(few.ndim == own.ndim == 1 and len(own) == len(known), "rare categories")
            require(len(few) and ((few >= 0) & (few < len(known))).all(), "rare categories")
            require(((own >= 0) & (own < n_codes)).all(), "rare categories")
        require(which is None or (type(which) is int and 0 <= which < n_codes), "dropped ones")
    require(model._n_features_outs == model._compute_n_features_outs(), "the indicators")


def check_targets(model: Any) -> None:
    """A mean per category, for each class."""
    check_categories(model)
    n_each = 1 if model.target_type_ != "multiclass" else len(model.classes_)
    require(len(model.encodings_) == n_each * len(model.categories_), "encodings_")


def make_loss(model: Any) -> None:
    """Make the loss of boosting, whose inverse link turns sums into probabilities."""
    if hasattr(model, "n_trees_per_iteration_"):
        model._loss = model._get_loss(None)


def make_interpolation(model: Any) -> None:
    """Make the interpolation between the points of an isotonic regression."""
    if hasattr(model, "X_thresholds_"):
        model._build_f(model.X_thresholds_, model.y_thresholds_)


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
    """Return the rounds that have these arrays; :func:`check_histograms` needs their owner."""
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
