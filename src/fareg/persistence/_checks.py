"""What must hold between the numbers of a stored estimator, so that it reads only its own memory.

Every function takes an estimator whose attributes have the kinds of ``_shapes``, fitted or not, and
raises an error if they contradict each other. Those whose names begin with ``make`` make what
follows from other attributes and is not stored: losses, search trees, interpolations.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fareg._validation import require
from fareg.persistence._trees import check_rounds

N_CATEGORIES = 256  # codes of categories that histogram gradient boosting has bits for
LARGEST = 1e100  # the squares of larger numbers overflow


def check_counts(model: Any) -> None:
    """One output, and as many classes as there are labels."""
    if hasattr(model, "n_outputs_"):
        require(model.n_outputs_ == 1, "n_outputs_")
    if hasattr(model, "classes_"):
        require(model.n_classes_ == len(model.classes_), "n_classes_")


def check_linear(model: Any) -> None:
    """A row of coefficients per class, or one for two classes."""
    if hasattr(model, "coef_"):
        n_rows = len(model.coef_)
        require(n_rows == (1 if len(model.classes_) == 2 else len(model.classes_)), "coef_")


def check_regression(model: Any) -> None:
    """A coefficient per column."""
    if hasattr(model, "coef_"):
        require(np.shape(model.coef_)[-1:] == (model.n_features_in_,), "coef_")


def check_shares(model: Any) -> None:
    """Shares of classes, which random labels are drawn from."""
    check_counts(model)
    if hasattr(model, "class_prior_"):
        shares = model.class_prior_
        require((shares >= 0).all() and abs(shares.sum() - 1) < 1e-6, "class_prior_")


def check_decision_tree(model: Any) -> None:
    """A tree reads the columns, and tells the classes, that its owner counts."""
    check_counts(model)
    if hasattr(model, "tree_"):
        n_classes = len(model.classes_) if hasattr(model, "classes_") else 1
        require(model.tree_.n_features == model.n_features_in_, "n_features_in_")
        require(model.tree_.max_n_classes == n_classes, "the classes of a tree")


def check_forest(model: Any) -> None:
    """Trees of one forest read the same columns and tell the same classes."""
    check_counts(model)
    for tree in getattr(model, "estimators_", ()):
        require(tree.tree_.n_features == model.n_features_in_, "n_features_in_")
        require(hasattr(tree, "classes_") == hasattr(model, "classes_"), "estimators_")
        require(not hasattr(tree, "classes_") or tree.n_classes_ == model.n_classes_, "estimators_")


def check_boosting(model: Any) -> None:
    """Trees in a table of rounds and classes, whose outputs are added in place."""
    if not hasattr(model, "estimators_"):
        return
    check_counts(model)
    n_trees = 1 if model.n_classes_ == 2 else model.n_classes_
    require(model.n_trees_per_iteration_ == n_trees == model.estimators_.shape[1], "estimators_")
    for tree in model.estimators_.flat:
        require(tree.tree_.max_n_classes == 1, "a decision tree")
        require(tree.tree_.n_features == model.n_features_in_, "n_features_in_")
    first = model.init_
    require(first == "zero" or type(first).__name__ == "DummyClassifier", "init_")
    require(first == "zero" or first.n_classes_ == model.n_classes_, "init_")


def make_loss(model: Any) -> None:
    """Make the loss of boosting, whose inverse link turns sums into probabilities."""
    if hasattr(model, "n_trees_per_iteration_"):
        model._loss = model._get_loss(None)


def check_histograms(model: Any) -> None:
    """Trees of histogram gradient boosting read the columns and categories that there are."""
    if not hasattr(model, "_predictors"):
        return
    bins, n_features = model._bin_mapper, model._n_features
    require(n_features == model.n_features_in_, "n_features_in_")
    n_trees = 1
    if hasattr(model, "classes_"):
        n_trees = 1 if len(model.classes_) == 2 else len(model.classes_)
    require(model.n_trees_per_iteration_ == n_trees, "n_trees_per_iteration_")
    require(all(len(one) == n_trees for one in model._predictors), "the rounds of boosting")
    require(model._baseline_prediction.shape == (1, n_trees), "_baseline_prediction")
    is_categorical = bins.is_categorical_ != 0
    require(is_categorical.shape == (n_features,) == (len(bins.bin_thresholds_),), "the bins")
    for codes in (bins.bin_thresholds_[j] for j in np.flatnonzero(is_categorical)):
        require(((codes >= 0) & (codes < N_CATEGORIES)).all(), "the categories of boosting")
    check_rounds(model._predictors, n_features, is_categorical)
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


def check_neighbours(model: Any) -> None:
    """Rows and labels belong together."""
    if not hasattr(model, "_fit_X"):
        return
    rows, codes = model._fit_X, model._y
    require(rows.ndim == 2 and rows.shape[1] == model.n_features_in_, "_fit_X")
    require(rows.dtype.kind == "f" and (np.abs(rows) < LARGEST).all(), "_fit_X")
    require(codes.dtype == np.intp and codes.shape == (len(rows),), "_y")
    require(((codes >= 0) & (codes < len(model.classes_))).all(), "_y")
    require(model.n_samples_fit_ == len(rows) and model.outputs_2d_ is False, "n_samples_fit_")
    require(1 <= model.n_neighbors <= len(rows), "n_neighbors")
    parameters = model.effective_metric_params_
    require(set(parameters) <= {"p", "w"} and parameters.get("w") is None, "the metric")
    require(model._fit_method in ("kd_tree", "ball_tree", "brute"), "_fit_method")


def make_search_tree(model: Any) -> None:
    """Make the search tree of neighbours from their rows."""
    if hasattr(model, "_fit_X"):
        from sklearn import neighbors

        kinds = {"kd_tree": neighbors.KDTree, "ball_tree": neighbors.BallTree}
        kind, parameters = kinds.get(model._fit_method), model.effective_metric_params_
        metric = {"metric": model.effective_metric_, **parameters}
        model._tree = kind and kind(model._fit_X, model.leaf_size, **metric)


def check_categories(model: Any) -> None:
    """As many lists of categories as columns; numbers ascend, because they are searched."""
    if not hasattr(model, "categories_"):
        return
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
    if not hasattr(model, "categories_"):
        return
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
    if hasattr(model, "encodings_"):
        n_each = 1 if model.target_type_ != "multiclass" else len(model.classes_)
        require(len(model.encodings_) == n_each * len(model.categories_), "encodings_")


def check_network(model: Any) -> None:
    """As many layers as are told, each fitting the next."""
    if not hasattr(model, "coefs_"):
        return
    n_layers = model.n_layers_ - 1
    require(n_layers == len(model.coefs_) == len(model.intercepts_), "coefs_")
    widths = [model.n_features_in_]
    for weights, biases in zip(model.coefs_, model.intercepts_, strict=True):
        require(weights.ndim == 2 and weights.shape == (widths[-1], len(biases)), "coefs_")
        widths.append(len(biases))
    n_outputs = 1 if len(model.classes_) == 2 else len(model.classes_)
    require(model.n_outputs_ == widths[-1] == n_outputs, "n_outputs_")


def check_steps(model: Any) -> None:
    """A pipeline has a last step."""
    require(len(model.steps) > 0, "steps")


def check_columns(model: Any) -> None:
    """Columns are those of the table that was fitted."""
    for _, _, columns in getattr(model, "transformers_", ()):
        require(not callable(columns), "the columns of a transformer")


def check_calibrated(model: Any) -> None:
    """Every calibrator belongs to a classifier of the same classes."""
    for one in getattr(model, "calibrated_classifiers_", ()):
        require(np.array_equal(one.classes, model.classes_), "calibrated_classifiers_")


def make_interpolation(model: Any) -> None:
    """Make the interpolation between the points of an isotonic regression."""
    if hasattr(model, "X_thresholds_"):
        model._build_f(model.X_thresholds_, model.y_thresholds_)
