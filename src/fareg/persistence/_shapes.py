"""The estimators that a model file may hold, each with the exact shape of its state.

A file from a stranger is read by this table alone. The file tells the name of a class; the table
tells where that class is imported from, which attributes it may have beside its parameters, and the
kind of each (``_kinds``). Nothing else is made: no other attribute, no function and no type but the
few that are listed. For each class, what scikit-learn does with these attributes when it predicts
was read; where compiled code follows their numbers unchecked, ``_checks`` follows them first.
Attributes that only training needs, such as losses and random generators, are not stored.

An estimator with anything else in it is left to skops, and whoever loads it must trust it by name.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fareg._validation import require
from fareg.persistence import _checks as checks
from fareg.persistence._kinds import KINDS, has_sizes
from fareg.persistence._trees import make_rounds, make_tree, rounds_arrays, tree_arrays

# Kinds of parameters, by name; all others are data. A memory would write files.
PARAMETERS = {
    "calibrators": "models",
    "classifier": "model",
    "estimator": "part",
    "func": "function",
    "init": "part",
    "inv_kw_args": "none",
    "inverse_func": "none",
    "kernel": "kernel",
    "kernel_params": "none",
    "kw_args": "none",
    "memory": "none",
    "metric": "metric",
    "metric_params": "none",
    "n_jobs": "jobs",
    "random_state": "seed",
    "remainder": "part",
    "steps": "steps",
    "transformers": "transformers",
    "verbose_feature_names_out": "flag",
}
FITTED = {
    "_sklearn_output_config": "output",
    "classes_": "labels",
    "feature_names_in_": "names",
    "n_features_in_": "count",
}
# Attributes that only training needs, or that are made anew.
LEFT_OUT = frozenset(
    ("_feature_subsample_rng", "_loss", "_loss_function_", "_metadata_request", "_optimizer"),
) | {"_random_seed", "_random_state", "_rng", "_scorer", "_tree", "f_"}
# Attributes that are stored as arrays: how they are taken apart, and made.
APART: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "tree": (tree_arrays, make_tree),
    "rounds": (rounds_arrays, make_rounds),
}


@dataclass(frozen=True)
class Shape:
    """What an object of a class may hold."""

    module: str
    name: str
    fitted: dict[str, str]
    check: Callable[[Any], None] | None = None
    finish: Callable[[Any], None] | None = None

    @cached_property
    def cls(self) -> Any:
        """The class, imported by the names in this file."""
        return getattr(importlib.import_module(self.module), self.name)

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """The parameters of the class, with their defaults."""
        return {p.name: p.default for p in inspect.signature(self.cls).parameters.values()}

    def state(self, thing: Any) -> dict[str, Any]:
        """Return the attributes of an object that are stored, after all checks."""
        self.verify(thing)
        kept = {name: getattr(thing, name) for name in self._stored(thing)}
        return {
            name: APART[kind][0](value) if (kind := self.kind(name)) in APART else value
            for name, value in kept.items()
        }

    def make(self, state: dict[str, Any]) -> Any:
        """Return the object with these attributes, after all checks."""
        own = {name: state.get(name, default) for name, default in self.defaults.items()}
        given = [value is not inspect.Parameter.empty for value in own.values()]
        require(all(given), f"the parameters of {self.name}")
        thing = self.cls(**own)
        for name in [name for name in state if name not in own]:
            kind = self.kind(name)
            vars(thing)[name] = APART[kind][1](state[name]) if kind in APART else state[name]
        self.verify(thing)
        if self.finish is not None:
            self.finish(thing)
        return thing

    def verify(self, thing: Any) -> None:
        """Refuse an object with other attributes, or with attributes that contradict each other."""
        sizes = {"d": getattr(thing, "n_features_in_", None)}
        if isinstance(getattr(thing, "classes_", None), np.ndarray):
            sizes["k"] = len(thing.classes_)
        for name in self._stored(thing):
            kind, value = self.kind(name), getattr(thing, name)
            fits = KINDS[kind](value) if kind in KINDS else has_sizes(value, kind, sizes)
            require(fits, f"{name} of {self.name}")
        names = getattr(thing, "feature_names_in_", None)
        require(names is None or len(names) == thing.n_features_in_, "feature_names_in_")
        if hasattr(thing, "_parameter_constraints"):
            thing._validate_params()
        if self.check is not None:
            self.check(thing)

    def kind(self, name: str) -> str:
        """Return the kind of an attribute; refuse one that the table does not list."""
        if name in self.defaults:
            return self.fitted.get(name) or PARAMETERS.get(name, "data")
        kind = self.fitted.get(name) or FITTED.get(name)
        require(kind is not None, f"the attribute {name} of {self.name}")
        return str(kind)

    def _stored(self, thing: Any) -> list[str]:
        """Return the names of the parameters, and of what neither a constructor nor we make."""
        own = {name: getattr(thing, name) for name in self.defaults}
        fitted = vars(thing).keys() - vars(self.cls(**own)).keys() - LEFT_OUT
        return [*own, *(name for name in vars(thing) if name in fitted)]


def _shape(
    where: str, check: Any = None, finish: Any = None, /, data: str = "", **kinds: str
) -> dict[str, Shape]:
    """Return the shapes of similar classes of one module, by their names."""
    module, names = where.split(": ")
    fitted = {**_each(data, "data"), **kinds}
    return {name: Shape(module, name, fitted, check, finish) for name in names.split()}


def _each(names: str, kind: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), kind)


SHAPES: dict[str, Shape] = {
    # fareg's own
    **_shape("fareg._encoding: FillEmpty", empty_="e"),
    **_shape("fareg.workflow._models: CodedLabels", classifier_="model"),
    # steps and columns
    **_shape("sklearn.pipeline: Pipeline", checks.check_steps),
    **_shape("sklearn.frozen: FrozenEstimator"),
    **_shape("sklearn.preprocessing: FunctionTransformer"),
    **_shape("sklearn.compose: make_column_selector"),
    **_shape(
        "sklearn.compose: ColumnTransformer",
        checks.check_columns,
        data="_columns _transformer_to_input_indices _transformers_feature_names_out "
        "output_indices_",
        _remainder="transformer",
        sparse_output_="flag",
        transformers_="transformers",
    ),
    # numbers and categories
    **_shape(
        "sklearn.preprocessing: StandardScaler MinMaxScaler MaxAbsScaler RobustScaler",
        data="n_samples_seen_",
        **_each("mean_ var_ scale_ min_ data_min_ data_max_ data_range_ max_abs_ center_", "d?"),
    ),
    **_shape(
        "sklearn.impute: SimpleImputer MissingIndicator",
        data="statistics_ _fit_dtype _fill_dtype",
        indicator_="part",
        features_="m",
        _n_features="count",
        _precomputed="flag",
    ),
    **_shape(
        "sklearn.preprocessing: OrdinalEncoder",
        checks.check_categories,
        data="_missing_indices",
        _default_to_infrequent_mappings="arrays",
        _infrequent_enabled="flag",
        _infrequent_indices="arrays",
        categories_="arrays",
    ),
    **_shape(
        "sklearn.preprocessing: OneHotEncoder",
        checks.check_indicators,
        data="drop_idx_ _drop_idx_after_grouping _n_features_outs",
        _default_to_infrequent_mappings="arrays",
        _infrequent_enabled="flag",
        _infrequent_indices="arrays",
        categories_="arrays",
    ),
    **_shape(
        "sklearn.preprocessing: TargetEncoder",
        checks.check_targets,
        data="target_type_ target_mean_",
        _default_to_infrequent_mappings="arrays",
        _infrequent_enabled="flag",
        _infrequent_indices="arrays",
        _label_encoder="model",
        categories_="arrays",
        encodings_="arrays",
    ),
    **_shape("sklearn.preprocessing: LabelEncoder"),
    **_shape("sklearn.preprocessing: LabelBinarizer", data="y_type_", sparse_input_="flag"),
    **_shape(
        "sklearn.kernel_approximation: Nystroem",
        component_indices_="m",
        components_="m,d",
        normalization_="m,m",
        _n_features_out="count",
    ),
    # linear models
    **_shape(
        "sklearn.linear_model: LogisticRegression LogisticRegressionCV SGDClassifier",
        checks.check_linear,
        data="n_iter_ t_ Cs_ C_ scores_ coefs_paths_ l1_ratio_ l1_ratios_ _expanded_class_weight "
        "_average_coef _average_intercept _standard_coef _standard_intercept",
        coef_="r,d",
        intercept_="r",
    ),
    **_shape(
        "sklearn.linear_model: Ridge RidgeCV",
        checks.check_regression,
        data="alpha_ best_score_ coef_ cv_results_ intercept_ n_iter_ solver_",
    ),
    **_shape(
        "sklearn.discriminant_analysis: LinearDiscriminantAnalysis",
        checks.check_linear,
        data="_max_components _n_features_out covariance_ explained_variance_ratio_ scalings_",
        coef_="r,d",
        intercept_="r",
        means_="k,d",
        priors_="k",
        xbar_="d",
    ),
    **_shape(
        "sklearn.discriminant_analysis: QuadraticDiscriminantAnalysis",
        data="covariance_",
        means_="k,d",
        priors_="k",
        rotations_="arrays",
        scalings_="arrays",
    ),
    # trees
    **_shape(
        "sklearn.tree: DecisionTreeClassifier DecisionTreeRegressor ExtraTreeClassifier "
        "ExtraTreeRegressor",
        checks.check_decision_tree,
        max_features_="count",
        n_classes_="count",
        n_outputs_="count",
        tree_="tree",
    ),
    **_shape(
        "sklearn.ensemble: RandomForestClassifier RandomForestRegressor ExtraTreesClassifier "
        "ExtraTreesRegressor",
        checks.check_forest,
        data="_n_samples _n_samples_bootstrap _sample_weight oob_decision_function_ oob_score_ "
        "oob_prediction_",
        estimator_="model",
        estimators_="trees",
        n_classes_="count",
        n_outputs_="count",
    ),
    **_shape(
        "sklearn.ensemble: GradientBoostingClassifier",
        checks.check_boosting,
        checks.make_loss,
        data="train_score_ oob_improvement_ oob_scores_ oob_score_",
        estimator_="model",
        estimators_="trees",
        init_="part",
        max_features_="count",
        n_classes_="count",
        n_estimators_="count",
        n_trees_per_iteration_="count",
    ),
    **{
        name: shape
        for where in (
            "sklearn.ensemble: HistGradientBoostingClassifier HistGradientBoostingRegressor",
            "fareg._encoding: AnySizeBoosting",
        )
        for name, shape in _shape(
            where,
            checks.check_histograms,
            checks.make_loss,
            data="is_categorical_ _is_categorical_remapped train_score_ validation_score_",
            _baseline_prediction="one,t",
            _bin_mapper="model",
            _fitted_with_sw="flag",
            _label_encoder="model",
            _n_features="count",
            _predictors="rounds",
            _preprocessor="part",
            _use_validation_data="flag",
            do_early_stopping_="flag",
            n_trees_per_iteration_="count",
        ).items()
    },
    **_shape(
        "sklearn.ensemble._hist_gradient_boosting.binning: _BinMapper",
        data="missing_values_bin_idx_",
        bin_thresholds_="arrays",
        is_categorical_="f",
        n_bins_non_missing_="f",
    ),
    # neighbours and naive Bayes
    **_shape(
        "sklearn.neighbors: KNeighborsClassifier",
        checks.check_neighbours,
        checks.make_search_tree,
        data="_fit_method effective_metric_params_",
        _fit_X="n,d",
        _y="n",
        effective_metric_="metric",
        n_samples_fit_="count",
        outputs_2d_="flag",
    ),
    **_shape(
        "sklearn.naive_bayes: GaussianNB MultinomialNB ComplementNB BernoulliNB",
        data="epsilon_",
        **_each("theta_ var_ feature_count_ feature_log_prob_", "k,d"),
        **_each("class_count_ class_prior_ class_log_prior_", "k"),
        feature_all_="d",
    ),
    **_shape(
        "sklearn.naive_bayes: CategoricalNB",
        category_count_="arrays",
        class_count_="k",
        class_log_prior_="k",
        feature_log_prob_="arrays",
        n_categories_="d",
    ),
    **_shape(
        "sklearn.dummy: DummyClassifier",
        checks.check_shares,
        data="_strategy",
        class_prior_="k",
        n_classes_="count",
        n_outputs_="count",
        sparse_output_="flag",
    ),
    # networks
    **{
        name: shape
        for where in (
            "sklearn.neural_network: MLPClassifier",
            "fareg.workflow._models: AnySizeNetwork",
        )
        for name, shape in _shape(
            where,
            checks.check_network,
            data="_best_coefs _best_intercepts _coef_indptr _intercept_indptr "
            "_no_improvement_count best_loss_ best_validation_score_ loss_ loss_curve_ n_iter_ "
            "out_activation_ t_ validation_scores_",
            _label_binarizer="model",
            coefs_="arrays",
            intercepts_="arrays",
            n_layers_="count",
            n_outputs_="count",
        ).items()
    },
    # calibrated classifiers
    **_shape(
        "sklearn.calibration: CalibratedClassifierCV",
        checks.check_calibrated,
        calibrated_classifiers_="calibrated",
    ),
    **_shape("sklearn.calibration: _CalibratedClassifier", calibrators="models"),
    **_shape("sklearn.calibration: _SigmoidCalibration _TemperatureScaling", data="a_ b_ beta_"),
    **_shape(
        "sklearn.isotonic: IsotonicRegression",
        None,
        checks.make_interpolation,
        data="X_min_ X_max_ increasing_",
        X_thresholds_="n",
        y_thresholds_="n",
    ),
}


def shape_of(thing: Any) -> Shape | None:
    """Return the shape of an object's class, None if the class is not in the table."""
    shape = SHAPES.get(type(thing).__name__)
    known = shape is not None and type(thing).__module__.startswith(shape.module.split(".")[0])
    return shape if shape is not None and known and type(thing) is shape.cls else None
