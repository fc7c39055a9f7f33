"""The estimators that a model file may hold, each with the exact shape of its state.

A file from a stranger is read only by ``SHAPES``. The file gives the name of a class. The table
says where that class is imported from, which attributes it may have in addition to its parameters,
and the kind of each. Nothing else is made: no other attribute, and no functions or types but those
of ``NAMED``. For each class, we have read what scikit-learn does with these attributes when it
predicts. Where compiled code follows their numbers unchecked, ``_checks`` checks them first.
Attributes that only training needs, such as losses and random generators, are not stored. Models
that store rows of people, such as nearest neighbours, are left out. skops stores all other
estimators, and users must trust them by name to load them.

A kind is a name in ``KINDS``; ``=k``, a number that equals a size; ``k,d``, an array of numbers
with these sizes, and ``k,d?``, such an array or None; ``list of kind``; or ``kind + kind``, a tuple
of these. The sizes k (classes), r (rows of coefficients, trees of a round: one for two classes) and
d (columns) are those of the estimator; any other letter means the same size throughout it.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_array

from fareg import scores
from fareg._encoding import ENCODER_FUNCTIONS
from fareg._validation import require
from fareg.persistence import _checks as checks

MAX_JOBS = 256
OUTPUTS = ("default", "pandas", "polars")
# How histogram gradient boosting reads columns that are not categorical.
READ_FLOATS = partial(check_array, dtype=[np.float64], ensure_all_finite=False)
# Functions that a file may name.
FUNCTIONS: dict[str, Any] = {
    **{f"fareg.scores.{name}": score for name, score in scores.SCORES.items()},
    **{f"fareg.encoding.{function.__name__}": function for function in ENCODER_FUNCTIONS},
    **{f"numpy.{name}": getattr(np, name) for name in ("exp", "log", "log1p", "sqrt")},
    "float64 numbers": READ_FLOATS,
}
# Types of numbers, columns and arrays that a file may name.
TYPES: dict[str, Any] = {
    **{kind.__name__: kind for kind in (bool, float, int, object, str)},
    **{f"numpy.{np.dtype(code).name}": np.dtype(code).type for code in "?bBhHiIlLefd"},
    **{f"numpy.{name}": getattr(np, name) for name in ("bool_", "number", "integer", "floating")},
}
DTYPES = {f"dtype {np.dtype(code).name}": np.dtype(code) for code in "?bBhHiIlLefdO"}
NAMED = {**FUNCTIONS, **TYPES, **DTYPES}
Sizes = dict[str, Any]


def stored_name(value: Any) -> str | None:
    """Return the name of a function or type in files, or None."""
    if isinstance(value, partial) and value.func is check_array:
        same = (value.args, value.keywords) == (READ_FLOATS.args, READ_FLOATS.keywords)
        return "float64 numbers" if same else None
    if isinstance(value, np.dtype):
        return f"dtype {value.name}" if f"dtype {value.name}" in DTYPES else None
    return next((name for name, known in NAMED.items() if known is value), None)


def is_label(value: Any) -> bool:
    """Return whether a value is a text, a number or None."""
    return value is None or isinstance(value, str | bool | int | float | np.number | np.bool_)


def is_data(value: Any) -> bool:
    """Return whether a value is plain data: no function, and no object with its own methods."""
    if type(value) is np.ndarray:
        return value.dtype.kind in "biufU" or (
            value.dtype.kind == "O" and all(map(is_label, value.flat))
        )
    if type(value) in (list, tuple):
        return all(map(is_data, value))
    if type(value) is dict:
        return all(map(is_label, value)) and all(map(is_data, value.values()))
    if type(value) is slice:
        ends = (value.start, value.stop, value.step)
        return all(end is None or type(end) is int for end in ends)
    return is_label(value) or stored_name(value) in (TYPES.keys() | DTYPES.keys())


def _is_model(value: Any) -> bool:
    return isinstance(value, BaseEstimator) and not isinstance(value, type)


def _is_count(value: Any) -> bool:
    is_number = isinstance(value, int | np.integer) and type(value) is not bool
    return is_number and bool(0 <= value < 2**31)


def _are_trees(trees: Any, sizes: Sizes, n_classes: int) -> bool:
    """Return whether these are fitted decision trees with their model's columns and classes."""
    return all(
        type(tree).__name__.startswith(("DecisionTree", "ExtraTree"))
        and _is_model(tree)
        and hasattr(tree, "tree_")
        and tree.n_features_in_ == sizes["d"]
        and len(getattr(tree, "classes_", ())) == n_classes
        for tree in trees
    )


def _is_first(value: Any, sizes: Sizes) -> bool:
    """Return whether gradient boosting can begin with this value."""
    is_dummy = type(value).__name__ == "DummyClassifier"
    return value == "zero" if type(value) is str else is_dummy and value.n_classes_ == sizes["k"]


KINDS: dict[str, Callable[[Any, Sizes], bool]] = {
    "data": lambda v, s: is_data(v),
    "count": lambda v, s: _is_count(v),
    "flag": lambda v, s: isinstance(v, bool | np.bool_),
    "text": lambda v, s: type(v) is str,
    "none": lambda v, s: v is None,
    "array?": lambda v, s: v is None or (type(v) is np.ndarray and is_data(v)),
    "labels": lambda v, s: v is None or (fits(v, "array?", s) and v.ndim == 1),
    "names": lambda v, s: (
        type(v) is np.ndarray and v.shape == (s["d"],) and all(type(n) is str for n in v)
    ),
    "shares": lambda v, s: fits(v, "k", s) and (v >= 0).all() and abs(v.sum() - 1) < 1e-6,
    "model": lambda v, s: _is_model(v),
    "calibrated": lambda v, s: type(v).__name__ == "_CalibratedClassifier",
    "part": lambda v, s: _is_model(v) or v is None or type(v) is str,
    "first": _is_first,
    "steps": lambda v, s: bool(v) and fits(v, "list of text + part", s),
    "selection": lambda v, s: is_data(v) or type(v).__name__ == "make_column_selector",
    "function": lambda v, s: v is None or stored_name(v) in FUNCTIONS,
    "output": lambda v, s: v in ({}, *({"transform": way} for way in OUTPUTS)),
    "jobs": lambda v, s: v is None or (type(v) is int and abs(v) <= MAX_JOBS),
    "seed": lambda v, s: is_label(v) or isinstance(v, np.random.RandomState | np.random.Generator),
    "tree": lambda v, s: (
        type(v).__name__ == "Tree" and (v.n_features, v.max_n_classes) == (s["d"], s["k"])
    ),
    "forest": lambda v, s: (
        type(v) is list and bool(v) and _are_trees(v, s, s["k"] * s["has classes"])
    ),
    "rounds of trees": lambda v, s: (
        type(v) is np.ndarray and v.ndim == 2 and v.shape[1] == s["r"] and _are_trees(v.flat, s, 0)
    ),
    "rounds": lambda v, s: type(v) is list and all(len(one) == s["r"] for one in v),
}


def known_sizes(thing: Any) -> Sizes:
    """Return the sizes that the kinds of an estimator's attributes refer to."""
    classes: Any = getattr(thing, "classes_", None)
    has_classes = isinstance(classes, np.ndarray)
    n_classes = len(classes) if has_classes else 1
    n_rows = 1 if n_classes == 2 else n_classes
    columns = getattr(thing, "n_features_in_", None)
    return {"1": 1, "k": n_classes, "r": n_rows, "d": columns, "has classes": has_classes}


def fits(value: Any, kind: str, sizes: Sizes) -> bool:
    """Return whether a value is of a kind, and add new sizes to ``sizes``."""
    if kind.startswith("list of "):
        return type(value) is list and all(fits(v, kind[8:], sizes) for v in value)
    if " + " in kind:
        kinds = kind.split(" + ")
        is_tuple = type(value) is tuple and len(value) == len(kinds)
        return is_tuple and all(fits(v, k, sizes) for v, k in zip(value, kinds, strict=True))
    if kind in KINDS:
        return bool(KINDS[kind](value, sizes))
    if kind.startswith("="):
        return _is_count(value) and bool(sizes.setdefault(kind[1:], value) == value)
    if value is None:
        return kind.endswith("?")
    letters = kind.removesuffix("?").split(",")
    if type(value) is not np.ndarray or value.dtype.kind not in "biuf":
        return False
    known = [sizes.setdefault(letter, n) for letter, n in zip(letters, value.shape, strict=False)]
    return len(letters) == value.ndim and known == list(value.shape)


# --- shapes of estimators --------------------------------------------------------------------


def _kinds(text: str) -> dict[str, str]:
    lines = [line.split(": ") for line in text.strip().splitlines()]
    return {name: kind for names, kind in lines for name in names.split()}


# Kinds of parameters in all classes; unlisted ones are data. A memory could write files.
PARAMETERS = _kinds("""
    estimator init remainder: part
    classifier: model
    calibrators: list of model
    steps: steps
    transformers: list of text + part + selection
    func: function
    inv_kw_args inverse_func kw_args memory: none
    n_jobs: jobs
    random_state: seed
    verbose_feature_names_out: flag
""")
# Attributes that any class may have.
FITTED = _kinds("""
    _sklearn_output_config: output
    classes_: labels
    feature_names_in_: names
    n_features_in_: count
""")
# Attributes that only training needs, or that are computed when a file is read.
NOT_STORED = _kinds("""
    _loss _loss_function_ _metadata_request _optimizer _scorer _tree f_: none
    _feature_subsample_rng _random_seed _random_state _rng: none
""").keys()


@dataclass(frozen=True)
class Shape:
    """What objects of a class may hold."""

    module: str
    name: str
    fitted: dict[str, str]

    @cached_property
    def cls(self) -> Any:
        """The class, imported by the names in this module."""
        return getattr(importlib.import_module(self.module), self.name)

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """The parameters of the class, with their defaults."""
        return {p.name: p.default for p in inspect.signature(self.cls).parameters.values()}

    def state(self, thing: Any) -> dict[str, Any]:
        """Return the stored attributes of an object, after all checks."""
        self.verify(thing)
        state = {name: getattr(thing, name) for name in self._stored(thing)}
        for name, value in state.items():
            if arrays := checks.AS_ARRAYS.get(self.kind(name)):
                state[name] = arrays[0](value)
        return state

    def make(self, state: dict[str, Any]) -> Any:
        """Return the object with these attributes, after all checks."""
        parameters = {name: state.get(name, default) for name, default in self.defaults.items()}
        is_missing = [value is inspect.Parameter.empty for value in parameters.values()]
        require(not any(is_missing), f"the parameters of {self.name}")
        thing = self.cls(**parameters)
        for name in [name for name in state if name not in parameters]:
            arrays = checks.AS_ARRAYS.get(self.kind(name))
            vars(thing)[name] = arrays[1](state[name]) if arrays else state[name]
        self.verify(thing)
        checks.FINISH.get(self.name, id)(thing)
        return thing

    def verify(self, thing: Any) -> None:
        """Refuse an object with other attributes, or with attributes that contradict each other."""
        sizes, stored = known_sizes(thing), self._stored(thing)
        for name in stored:
            is_right = fits(getattr(thing, name), self.kind(name), sizes)
            require(is_right, f"{name} of {self.name}")
        if hasattr(thing, "_parameter_constraints"):
            thing._validate_params()
        if set(stored) - self.defaults.keys() - {"_sklearn_output_config"}:  # if it is fitted
            checks.CHECKS.get(self.name, id)(thing)

    def kind(self, name: str) -> str:
        """Return the kind of an attribute; refuse attributes that the table does not list."""
        if name in self.defaults:
            return self.fitted.get(name) or PARAMETERS.get(name, "data")
        kind = self.fitted.get(name) or FITTED.get(name)
        require(kind is not None, f"the attribute {name} of {self.name}")
        return str(kind)

    def _stored(self, thing: Any) -> list[str]:
        """Return the names of all parameters, and of attributes that a file must hold."""
        parameters = {name: getattr(thing, name) for name in self.defaults}
        fitted = vars(thing).keys() - vars(self.cls(**parameters)).keys() - NOT_STORED
        return [*parameters, *(name for name in vars(thing) if name in fitted)]


def _read_table(text: str) -> dict[str, Shape]:
    """Read a table of classes, each followed by its attributes by kind; return shapes by name."""
    shapes: dict[str, Shape] = {}
    for classes, attributes in re.findall(r"((?:^\S.*\n)+)((?:^ .*\n)*)", text, re.MULTILINE):
        fitted = _kinds(attributes)
        for line in classes.splitlines():
            module, names = line.split(": ")
            shapes |= {name: Shape(module, name, fitted) for name in names.split()}
    return shapes


SHAPES = _read_table("""\
fareg._encoding: FillEmpty
    empty_: e
fareg.workflow._models: CodedLabels
    classifier_: model
sklearn.compose: ColumnTransformer
    _columns _transformer_to_input_indices _transformers_feature_names_out output_indices_: data
    _remainder: text + part + data
    sparse_output_: flag
    transformers_: list of text + part + data
sklearn.preprocessing: StandardScaler MinMaxScaler MaxAbsScaler RobustScaler
    n_samples_seen_: data
    mean_ var_ scale_ min_ data_min_ data_max_ data_range_ max_abs_ center_: d?
sklearn.impute: SimpleImputer MissingIndicator
    statistics_ _fit_dtype _fill_dtype: data
    indicator_: part
    features_: m
    _n_features: =d
    _precomputed: flag
sklearn.preprocessing: OrdinalEncoder OneHotEncoder TargetEncoder
    _missing_indices drop_idx_ _drop_idx_after_grouping _n_features_outs: data
    _infrequent_enabled: flag
    _default_to_infrequent_mappings _infrequent_indices categories_ encodings_: list of array?
    target_type_ target_mean_: data
    _label_encoder: model
sklearn.preprocessing: LabelEncoder LabelBinarizer
    y_type_: data
    sparse_input_: flag
sklearn.linear_model: LogisticRegression LogisticRegressionCV SGDClassifier
    n_iter_ t_ Cs_ C_ scores_ coefs_paths_ l1_ratio_ l1_ratios_ _expanded_class_weight: data
    _average_coef _average_intercept _standard_coef _standard_intercept: data
    coef_: r,d
    intercept_: r
sklearn.linear_model: Ridge RidgeCV
    alpha_ best_score_ cv_results_ intercept_ n_iter_ solver_: data
    coef_: d
sklearn.discriminant_analysis: LinearDiscriminantAnalysis QuadraticDiscriminantAnalysis
    _max_components _n_features_out covariance_ explained_variance_ratio_: data
    rotations_ scalings_: data
    coef_: r,d
    intercept_: r
    means_: k,d
    priors_: k
    xbar_: d
sklearn.tree: DecisionTreeClassifier DecisionTreeRegressor ExtraTreeClassifier ExtraTreeRegressor
    max_features_: count
    n_classes_: =k
    n_outputs_: =1
    tree_: tree
sklearn.ensemble: RandomForestClassifier RandomForestRegressor
sklearn.ensemble: ExtraTreesClassifier ExtraTreesRegressor
    _n_samples _n_samples_bootstrap _sample_weight: data
    oob_decision_function_ oob_score_ oob_prediction_: data
    estimator_: model
    estimators_: forest
    n_classes_: =k
    n_outputs_: =1
sklearn.ensemble: GradientBoostingClassifier
    train_score_ oob_improvement_ oob_scores_ oob_score_: data
    estimator_: model
    estimators_: rounds of trees
    init_: first
    max_features_ n_estimators_: count
    n_classes_: =k
    n_trees_per_iteration_: =r
sklearn.ensemble: HistGradientBoostingClassifier HistGradientBoostingRegressor
fareg._encoding: AnySizeBoosting
    is_categorical_ _is_categorical_remapped train_score_ validation_score_: data
    _baseline_prediction: 1,r
    _bin_mapper _label_encoder: model
    _fitted_with_sw _use_validation_data do_early_stopping_: flag
    _n_features: =d
    _predictors: rounds
    _preprocessor: part
    n_trees_per_iteration_: =r
sklearn.ensemble._hist_gradient_boosting.binning: _BinMapper
    missing_values_bin_idx_: data
    bin_thresholds_: list of array?
    is_categorical_ n_bins_non_missing_: f
sklearn.naive_bayes: GaussianNB MultinomialNB ComplementNB BernoulliNB
    epsilon_: data
    theta_ var_ feature_count_ feature_log_prob_: k,d
    class_count_ class_prior_ class_log_prior_: k
    feature_all_: d
sklearn.naive_bayes: CategoricalNB
    category_count_ feature_log_prob_: list of array?
    class_count_ class_log_prior_: k
    n_categories_: d
sklearn.dummy: DummyClassifier
    _strategy: data
    class_prior_: shares
    n_classes_: =k
    n_outputs_: =1
    sparse_output_: flag
sklearn.neural_network: MLPClassifier
fareg.workflow._models: AnySizeNetwork
    _best_coefs _best_intercepts _coef_indptr _intercept_indptr _no_improvement_count: data
    best_loss_ best_validation_score_ loss_ loss_curve_ n_iter_ out_activation_: data
    t_ validation_scores_: data
    _label_binarizer: model
    coefs_ intercepts_: list of array?
    n_layers_: count
    n_outputs_: =r
sklearn.calibration: CalibratedClassifierCV
    calibrated_classifiers_: list of calibrated
sklearn.calibration: _SigmoidCalibration _TemperatureScaling
    a_ b_ beta_: data
sklearn.isotonic: IsotonicRegression
    X_min_ X_max_ increasing_: data
    X_thresholds_ y_thresholds_: n
sklearn.pipeline: Pipeline
sklearn.frozen: FrozenEstimator
sklearn.preprocessing: FunctionTransformer
sklearn.compose: make_column_selector
sklearn.calibration: _CalibratedClassifier
""")


def shaped_state(thing: Any) -> dict[str, Any] | None:
    """Return the attributes of an estimator that fits its shape, None for any other object."""
    shape = SHAPES.get(type(thing).__name__)
    try:
        return shape.state(thing) if shape is not None and type(thing) is shape.cls else None
    except Exception:  # an object that does not fit may raise anything
        return None
