"""The model whose probabilities are calibrated: one to train, one in a file, or columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline

from fareg._encoding import gradient_boosting, lone_rows_twice, one_hot_encoder, ordinal_encoder
from fareg._files import AnyPath
from fareg._validation import FloatArray, InvalidInputError, check_choice
from fareg._words import quoted, repeated, shown, unquoted
from fareg.classifiers import ProbabilityColumns
from fareg.persistence import read_estimator
from fareg.workflow._labels import as_known, label_texts
from fareg.workflow._roles import RequestedRoles, Roles, assign_roles

MAX_CATEGORIES = 100  # rarer categories share one input of a linear model or network
PICKLES = (".joblib", ".pkl", ".pickle")
Probabilities = str | Sequence[str] | Mapping[str, str]


class AnySizeNetwork(MLPClassifier):
    """A network that also trains on classes of a single row."""

    def fit(self, X: FloatArray, y: Any, sample_weight: Any = None) -> Self:
        """Train on numbers of shape (n_samples, n_features)."""
        return super().fit(*lone_rows_twice(X, y, sample_weight))


class CodedLabels(ClassifierMixin, BaseEstimator):
    """A classifier that needs the labels 0, 1, 2, ..., wrapped for labels of any type.

    Boosting libraries need them, as do early-stopping networks of older scikit-learn versions.

    >>> from sklearn.dummy import DummyClassifier
    >>> CodedLabels(DummyClassifier()).fit([[0.0], [1.0]], ["b", "a"]).predict([[2.0]]).tolist()
    ['a']
    """

    def __init__(self, classifier: Any) -> None:
        self.classifier = classifier

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on the positions of the labels in ``classes_``."""
        self.classes_, codes = np.unique(y, return_inverse=True)
        weights = {} if sample_weight is None else {"sample_weight": sample_weight}
        self.classifier_ = clone(self.classifier).fit(X, codes, **weights)
        return self

    def predict_proba(self, X: Any) -> FloatArray:
        """Return probabilities of the labels, shape (n_samples, n_classes)."""
        return np.asarray(self.classifier_.predict_proba(X), dtype=np.float64)

    def predict(self, X: Any) -> Any:
        """Return the most probable labels."""
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


# Libraries, which are also the names of their models, with a classifier and its options.
LIBRARIES: dict[str, tuple[str, dict[str, Any]]] = {
    "xgboost": ("XGBClassifier", {}),
    # With n_jobs=0, OpenMP chooses the number of threads, which is small for small tables.
    "lightgbm": ("LGBMClassifier", {"verbosity": -1, "n_jobs": 0}),
    "catboost": ("CatBoostClassifier", {"verbose": False, "allow_writing_files": False}),
}


def _boosting(library: str, seed: int) -> Any:
    name, options = LIBRARIES[library]
    boosting = getattr(import_module(library), name)(random_state=seed, **options)
    return make_pipeline(ordinal_encoder(), CodedLabels(boosting))


def _mlp(seed: int) -> Any:
    # A fifth of the rows decides when to stop: at least two rows, even in the smallest tables.
    options: dict[str, Any] = {"early_stopping": True, "validation_fraction": 0.2}
    network = AnySizeNetwork((64, 32), random_state=seed, **options)
    return make_pipeline(one_hot_encoder(MAX_CATEGORIES), CodedLabels(network))


MODELS: dict[str, Callable[[int], Any]] = {
    "hgb": gradient_boosting,
    "forest": lambda seed: make_pipeline(
        ordinal_encoder(),
        RandomForestClassifier(200, min_samples_leaf=3, n_jobs=-1, random_state=seed),
    ),
    "logistic": lambda seed: make_pipeline(
        one_hot_encoder(MAX_CATEGORIES), LogisticRegression(max_iter=1000)
    ),
    "mlp": _mlp,
    **{library: partial(_boosting, library) for library in LIBRARIES},
}


def reading(model: Any, features: Sequence[str]) -> Pipeline:
    """Return a model that reads only the given columns of a table, in this order."""
    columns = ColumnTransformer(
        [("features", "passthrough", list(features))], verbose_feature_names_out=False
    )
    return make_pipeline(columns.set_output(transform="pandas"), model)


def _check_named(name: str) -> None:
    """Refuse the name of an unknown model, or of one whose library is not installed."""
    check_choice("estimator", name, MODELS)
    if name not in LIBRARIES:
        return
    try:
        import_module(name)
    except ImportError as error:
        raise InvalidInputError(
            f"estimator {name} needs a library that is not installed ({error}); install it with: "
            f"pip install {name}"
        ) from error


class ForeignModelError(InvalidInputError):
    """A model file in a format that fareg does not read."""


@dataclass(frozen=True)
class BaseModel:
    """A model with its name, and the table as the model reads it."""

    name: str
    estimator: Any
    roles: Roles
    y: Any  # (n_samples,) labels in the type of the model's classes


@dataclass(frozen=True)
class ModelSource:
    """Where a model comes from; the fields are those of :func:`fareg.workflow.fit_file`."""

    estimator: AnyPath = "hgb"  # a name, or the path of a file
    probabilities: Probabilities | None = None
    trusted: Sequence[str] = ()

    @property
    def path(self) -> Path | None:
        """The file of a fitted model, None if there is none."""
        path = Path(self.estimator)
        is_path = self.estimator not in MODELS and (path.suffix or path.exists())
        return path if is_path else None

    def check(self, features: Any) -> None:
        """Refuse two models at once, unreadable files and features without a model."""
        if self.path is None:
            _check_named(str(self.estimator))
        elif (suffix := self.path.suffix.lower()) in PICKLES:
            raise ForeignModelError(
                f"{self.path} is a pickle, and reading a pickle runs whatever code is in it; write "
                'the model with skops.io.dump(model, "model.skops"), or give its probabilities as '
                "columns"
            )
        elif suffix != ".skops":
            raise ForeignModelError(
                f"{self.path} must end in .skops, so that its format is known; give the "
                "probabilities of any other model as columns"
            )
        if self.probabilities is None:
            return
        if self.estimator != "hgb":
            raise InvalidInputError(
                f"pass one model, got {self.estimator} and columns of probabilities; leave out one"
            )
        if not self.probabilities:
            raise InvalidInputError("no columns of probabilities are named; name one per label")
        if features is not None:
            raise InvalidInputError(
                "features are for a model, got columns of probabilities instead; leave out features"
            )


def base_model(
    frame: pd.DataFrame, y: Any, source: ModelSource, requested: RequestedRoles, *, seed: int
) -> BaseModel:
    """Return the model to calibrate, and the roles of the columns of a table."""
    if source.probabilities is not None:
        return _model_of_columns(frame, y, source.probabilities, requested)
    if source.path is not None:
        return _model_of_file(frame, y, source.path, source.trusted, requested)
    roles, name = assign_roles(frame, requested), str(source.estimator)
    model = MODELS[name](seed)
    return BaseModel(name, reading(model, roles.features) if roles.others else model, roles, y)


def _model_of_columns(
    frame: pd.DataFrame, y: Any, probabilities: Probabilities, requested: RequestedRoles
) -> BaseModel:
    """Return columns of probabilities as a model; refuse columns that do not fit the labels."""
    columns = _columns(probabilities, [str(name) for name in frame.columns], requested.source)
    names = list(columns.values()) if isinstance(columns, dict) else columns
    if twice := repeated(names):
        raise InvalidInputError(
            f"columns of probabilities must be named once, got {shown(twice)} twice; name one for "
            "each label"
        )
    roles, labels = assign_roles(frame, requested, names), sorted(set(label_texts(y)))
    other_label = _other_label(columns, labels) if len(names) == 1 else None
    model, X = ProbabilityColumns(columns, rest=other_label), frame[roles.columns]
    try:
        model.fit(X, y)
    except InvalidInputError as error:
        raise InvalidInputError(
            f"columns {shown(map(quoted, names))} are not named after the labels of the target "
            f"({shown(labels)}); write the label before each column, such as "
            f"{quoted(labels[0])}={quoted(names[0])}"
        ) from error
    y = match_labels(y, model.classes_)
    try:
        model.predict_proba(X)
    except InvalidInputError as error:  # the columns hold no probabilities
        without = sorted(set(label_texts(y)) - set(label_texts(model.classes_)))
        hint = f"; no column is given for the label {shown(without)}" if without else ""
        raise InvalidInputError(f"{error}{hint}") from error
    return BaseModel(f"columns {shown(names)}", model, roles, y)


def _columns(
    probabilities: Probabilities, known: list[str], source: str
) -> dict[str, str] | list[str]:
    """Return the columns of probabilities, by label if the labels are named."""
    if isinstance(probabilities, Mapping):
        return dict(probabilities)
    items = [f"{probabilities}*"] if isinstance(probabilities, str) else list(probabilities)
    names = [item if item in known else unquoted(item) for item in items]
    if set(names) <= set(known) or not any(sign in item for item in items for sign in "=*"):
        return names
    if len(items) == 1 and items[0].find("*") == len(items[0]) - 1:
        found = [name for name in known if name.startswith(items[0][:-1])]
        if not found:
            raise InvalidInputError(
                f"{source} has no column whose name begins with {items[0][:-1]}; its columns: "
                f"{shown(known)}"
            )
        return found
    pairs = []
    for item in items:  # labels and columns may contain "=" too, such as <=50K
        cuts = [(item[:n], item[n + 1 :]) for n, sign in enumerate(item) if sign == "="]
        cuts = [(unquoted(label), unquoted(column)) for label, column in cuts] or [("", "")]
        pairs.append(next((cut for cut in cuts if cut[1] in known), cuts[0]))
    if not all(column for _, column in pairs) or len(dict(pairs)) < len(pairs):
        raise InvalidInputError(
            "probabilities must be a list of columns, pairs label=column of distinct labels or one "
            f"beginning such as p_*, got {','.join(items)}; put a name with a comma or outer "
            'blanks in quotation marks, such as low="p, low"'
        )
    return dict(pairs)


def _other_label(columns: dict[str, str] | list[str], labels: list[str]) -> str:
    """Return the second of two labels, whose probability is one minus the given column."""
    if len(labels) != 2:
        raise InvalidInputError(
            f"one column of probabilities is enough for two labels, the target holds {len(labels)} "
            f"({shown(labels)}); give a column for each"
        )
    if isinstance(columns, list):
        label = next((label for label in labels if columns[0].endswith(label)), labels[-1])
        raise InvalidInputError(
            "one column of probabilities needs its label, "
            f"{' or '.join(labels)}, got {columns[0]}; write it before the column, such as "
            f"{label}={columns[0]}"
        )
    others = [label for label in labels if label not in columns]
    if len(others) == 2:
        ((label, column),) = columns.items()
        raise InvalidInputError(
            f"the target has no label {label}, got {label}={column}; write one of its labels "
            f"before the column: {' or '.join(labels)}"
        )
    return others[0]


def _model_of_file(
    frame: pd.DataFrame, y: Any, path: Path, trusted: Sequence[str], requested: RequestedRoles
) -> BaseModel:
    """Return the model in a file; refuse one that cannot read the table."""
    fitted = read_estimator(path, trusted)
    if not hasattr(fitted, "predict_proba") or not hasattr(fitted, "classes_"):
        raise InvalidInputError(
            f"{path} must hold a fitted classifier with predict_proba, got "
            f"{type(fitted).__name__}; fit it, or wrap it in sklearn's CalibratedClassifierCV"
        )
    if (known := getattr(fitted, "feature_names_in_", None)) is not None:
        if requested.features is not None:
            raise InvalidInputError(f"{path} knows the features that it reads; leave them out")
        requested = replace(requested, features=[str(name) for name in known])
    roles = assign_roles(frame, requested)
    n_wanted = getattr(fitted, "n_features_in_", len(roles.features))
    if n_wanted != len(roles.features):
        raise InvalidInputError(
            f"{path} reads {n_wanted} columns whose names it does not know, got "
            f"{len(roles.features)}; name them as features, in their order in training"
        )
    if roles.others:
        fitted = reading(fitted, roles.features)
        fitted[0].fit(frame[roles.columns])
    y = match_labels(y, fitted.classes_)
    return BaseModel(path.name, FrozenEstimator(fitted), roles, y)


def match_labels(y: Any, classes: Any) -> Any:
    """Return labels in the type of a model's classes; refuse labels that the model cannot know.

    >>> match_labels(np.array([0, 1]), np.array(["0", "1", "2"])).tolist()
    ['0', '1']
    """
    known = dict(zip(label_texts(classes), np.asarray(classes).tolist(), strict=True))
    texts = as_known(label_texts(y), known)
    strange = sorted({text for text in texts if text not in known})
    kind = np.asarray(classes).dtype
    kind = np.dtype(object) if kind.kind in "OUT" else kind
    if strange and (kind.kind != "O" or len(strange) == len(set(texts))):
        raise InvalidInputError(
            f"the target holds labels that the model does not know ({shown(strange)}); its classes "
            f"are {shown(list(known))}"
        )
    return np.array([known.get(text, text) for text in texts], dtype=kind)
