"""The estimators that a model file may hold, each with the exact shape of its state.

A file from a stranger is read by this table alone. The file tells the name of a class; the table
tells where that class is imported from, which attributes it may have beside its parameters, and the
kind of each (``_kinds``). Nothing else is made: no other attribute, no function and no type but the
few that are listed. For each class, what scikit-learn does with these attributes when it predicts
was read; where compiled code follows their numbers unchecked, ``_checks`` follows them first.
Attributes that only training needs, such as losses and random generators, are not stored. Models
whose attributes are rows of people, such as nearest neighbours, are left out.

An estimator with anything else in it is left to skops, and whoever loads it must trust it by name.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fareg._validation import require
from fareg.persistence import _checks as checks
from fareg.persistence._kinds import fits, sizes_of

# Kinds of parameters, by name; all others are data. A memory would write files.
PARAMETERS: dict[str, Any] = {
    "calibrators": ["model"],
    "classifier": "model",
    "estimator": "part",
    "func": "function",
    "init": "part",
    "inv_kw_args": "none",
    "inverse_func": "none",
    "kw_args": "none",
    "memory": "none",
    "n_jobs": "jobs",
    "random_state": "seed",
    "remainder": "part",
    "steps": "steps",
    "transformers": [("text", "part", "selection")],
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
APART: dict[Any, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "tree": (checks.tree_arrays, checks.make_tree),
    "rounds": (checks.rounds_arrays, checks.make_rounds),
}


@dataclass(frozen=True)
class Shape:
    """What an object of a class may hold."""

    module: str
    name: str
    fitted: dict[str, Any]
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
        apart = {name: self.apart(name) for name in kept}
        return {name: way[0](kept[name]) if way else kept[name] for name, way in apart.items()}

    def make(self, state: dict[str, Any]) -> Any:
        """Return the object with these attributes, after all checks."""
        own = {name: state.get(name, default) for name, default in self.defaults.items()}
        given = [value is not inspect.Parameter.empty for value in own.values()]
        require(all(given), f"the parameters of {self.name}")
        thing = self.cls(**own)
        for name in [name for name in state if name not in own]:
            way = self.apart(name)
            vars(thing)[name] = way[1](state[name]) if way else state[name]
        self.verify(thing)
        if self.finish is not None:
            self.finish(thing)
        return thing

    def verify(self, thing: Any) -> None:
        """Refuse an object with other attributes, or with attributes that contradict each other."""
        sizes, stored = sizes_of(thing), self._stored(thing)
        for name in stored:
            fit = fits(getattr(thing, name), self.kind(name), sizes)
            require(fit, f"{name} of {self.name}")
        if hasattr(thing, "_parameter_constraints"):
            thing._validate_params()
        is_fitted = set(stored) - self.defaults.keys() - {"_sklearn_output_config"}
        if self.check is not None and is_fitted:
            self.check(thing)

    def kind(self, name: str) -> Any:
        """Return the kind of an attribute; refuse one that the table does not list."""
        if name in self.defaults:
            return self.fitted.get(name) or PARAMETERS.get(name, "data")
        kind = self.fitted.get(name) or FITTED.get(name)
        require(kind is not None, f"the attribute {name} of {self.name}")
        return kind

    def apart(self, name: str) -> Any:
        """Return how an attribute is taken apart and made, None if it is stored as it is."""
        kind = self.kind(name)
        return APART.get(kind) if isinstance(kind, str) else None

    def _stored(self, thing: Any) -> list[str]:
        """Return the names of the parameters, and of what neither a constructor nor we make."""
        own = {name: getattr(thing, name) for name in self.defaults}
        fitted = vars(thing).keys() - vars(self.cls(**own)).keys() - LEFT_OUT
        return [*own, *(name for name in vars(thing) if name in fitted)]


def _shapes(
    where: str, check: Any = None, finish: Any = None, /, data: str = "", **kinds: Any
) -> dict[str, Shape]:
    """Return the shapes of similar classes, named as ``module: Class Class; module: Class``."""
    fitted = {**_each(data, "data"), **kinds}
    found: dict[str, Shape] = {}
    for part in where.split("; "):
        module, names = part.split(": ")
        found |= {name: Shape(module, name, fitted, check, finish) for name in names.split()}
    return found


def _each(names: str, kind: Any) -> dict[str, Any]:
    return dict.fromkeys(names.split(), kind)


CATEGORIES = {
    "_infrequent_enabled": "flag",
    **_each("_default_to_infrequent_mappings _infrequent_indices categories_", ["array?"]),
}
SHAPES: dict[str, Shape] = {
    # fareg's own
    **_shapes("fareg._encoding: FillEmpty", empty_="e"),
    **_shapes("fareg.workflow._models: CodedLabels", classifier_="model"),
    # steps and columns
    **_shapes("sklearn.pipeline: Pipeline; sklearn.frozen: FrozenEstimator"),
    **_shapes("sklearn.preprocessing: FunctionTransformer; sklearn.compose: make_column_selector"),
    **_shapes(
        "sklearn.compose: ColumnTransformer",
        data="_columns _transformer_to_input_indices _transformers_feature_names_out "
        "output_indices_",
        _remainder=("text", "part", "data"),
        sparse_output_="flag",
        transformers_=[("text", "part", "data")],
    ),
    # numbers and categories
    **_shapes(
        "sklearn.preprocessing: StandardScaler MinMaxScaler MaxAbsScaler RobustScaler",
        data="n_samples_seen_",
        **_each("mean_ var_ scale_ min_ data_min_ data_max_ data_range_ max_abs_ center_", "d?"),
    ),
    **_shapes(
        "sklearn.impute: SimpleImputer MissingIndicator",
        data="statistics_ _fit_dtype _fill_dtype",
        indicator_="part",
        features_="m",
        _n_features="=d",
        _precomputed="flag",
    ),
    **_shapes(
        "sklearn.preprocessing: OrdinalEncoder",
        checks.check_categories,
        data="_missing_indices",
        **CATEGORIES,
    ),
    **_shapes(
        "sklearn.preprocessing: OneHotEncoder",
        checks.check_indicators,
        data="drop_idx_ _drop_idx_after_grouping _n_features_outs",
        **CATEGORIES,
    ),
    **_shapes(
        "sklearn.preprocessing: TargetEncoder",
        checks.check_targets,
        data="target_type_ target_mean_",
        _label_encoder="model",
        encodings_=["array?"],
        **CATEGORIES,
    ),
    **_shapes(
        "sklearn.preprocessing: LabelEncoder LabelBinarizer", data="y_type_", sparse_input_="flag"
    ),
    # linear models
    **_shapes(
        "sklearn.linear_model: LogisticRegression LogisticRegressionCV SGDClassifier",
        data="n_iter_ t_ Cs_ C_ scores_ coefs_paths_ l1_ratio_ l1_ratios_ _expanded_class_weight "
        "_average_coef _average_intercept _standard_coef _standard_intercept",
        coef_="r,d",
        intercept_="r",
    ),
    **_shapes(
        "sklearn.linear_model: Ridge RidgeCV",
        data="alpha_ best_score_ cv_results_ intercept_ n_iter_ solver_",
        coef_="d",
    ),
    **_shapes(
        "sklearn.discriminant_analysis: LinearDiscriminantAnalysis QuadraticDiscriminantAnalysis",
        data="_max_components _n_features_out covariance_ explained_variance_ratio_ rotations_ "
        "scalings_",
        coef_="r,d",
        intercept_="r",
        means_="k,d",
        priors_="k",
        xbar_="d",
    ),
    # trees
    **_shapes(
        "sklearn.tree: DecisionTreeClassifier DecisionTreeRegressor ExtraTreeClassifier "
        "ExtraTreeRegressor",
        max_features_="count",
        n_classes_="=k",
        n_outputs_="=1",
        tree_="tree",
    ),
    **_shapes(
        "sklearn.ensemble: RandomForestClassifier RandomForestRegressor ExtraTreesClassifier "
        "ExtraTreesRegressor",
        data="_n_samples _n_samples_bootstrap _sample_weight oob_decision_function_ oob_score_ "
        "oob_prediction_",
        estimator_="model",
        estimators_="forest",
        n_classes_="=k",
        n_outputs_="=1",
    ),
    **_shapes(
        "sklearn.ensemble: GradientBoostingClassifier",
        None,
        checks.make_loss,
        data="train_score_ oob_improvement_ oob_scores_ oob_score_",
        estimator_="model",
        estimators_="rounds of trees",
        init_="first",
        max_features_="count",
        n_classes_="=k",
        n_estimators_="count",
        n_trees_per_iteration_="=r",
    ),
    **_shapes(
        "sklearn.ensemble: HistGradientBoostingClassifier HistGradientBoostingRegressor; "
        "fareg._encoding: AnySizeBoosting",
        checks.check_histograms,
        checks.make_loss,
        data="is_categorical_ _is_categorical_remapped train_score_ validation_score_",
        _baseline_prediction="1,r",
        _bin_mapper="model",
        _fitted_with_sw="flag",
        _label_encoder="model",
        _n_features="=d",
        _predictors="rounds",
        _preprocessor="part",
        _use_validation_data="flag",
        do_early_stopping_="flag",
        n_trees_per_iteration_="=r",
    ),
    **_shapes(
        "sklearn.ensemble._hist_gradient_boosting.binning: _BinMapper",
        data="missing_values_bin_idx_",
        bin_thresholds_=["array?"],
        is_categorical_="f",
        n_bins_non_missing_="f",
    ),
    # naive Bayes
    **_shapes(
        "sklearn.naive_bayes: GaussianNB MultinomialNB ComplementNB BernoulliNB",
        data="epsilon_",
        **_each("theta_ var_ feature_count_ feature_log_prob_", "k,d"),
        **_each("class_count_ class_prior_ class_log_prior_", "k"),
        feature_all_="d",
    ),
    **_shapes(
        "sklearn.naive_bayes: CategoricalNB",
        **_each("category_count_ feature_log_prob_", ["array?"]),
        **_each("class_count_ class_log_prior_", "k"),
        n_categories_="d",
    ),
    **_shapes(
        "sklearn.dummy: DummyClassifier",
        data="_strategy",
        class_prior_="shares",
        n_classes_="=k",
        n_outputs_="=1",
        sparse_output_="flag",
    ),
    # networks
    **_shapes(
        "sklearn.neural_network: MLPClassifier; fareg.workflow._models: AnySizeNetwork",
        data="_best_coefs _best_intercepts _coef_indptr _intercept_indptr _no_improvement_count "
        "best_loss_ best_validation_score_ loss_ loss_curve_ n_iter_ out_activation_ t_ "
        "validation_scores_",
        _label_binarizer="model",
        coefs_=["array?"],
        intercepts_=["array?"],
        n_layers_="count",
        n_outputs_="=r",
    ),
    # calibrated classifiers
    **_shapes(
        "sklearn.calibration: CalibratedClassifierCV", calibrated_classifiers_=["calibrated"]
    ),
    **_shapes("sklearn.calibration: _CalibratedClassifier", calibrators=["model"]),
    **_shapes("sklearn.calibration: _SigmoidCalibration _TemperatureScaling", data="a_ b_ beta_"),
    **_shapes(
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
