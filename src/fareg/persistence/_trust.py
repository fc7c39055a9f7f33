"""Which types of a stored estimator are trusted without being named.

Trusting a class means that an object of it may be filled with any attributes, trusting a function
that a stored estimator may call it when it predicts. So the rule looks at what code can do, not
only at who wrote it:

- classes of scikit-learn's packages of models (``MODEL_PACKAGES``) that are written in Python, as
  their methods stay inside Python whatever their attributes hold. Compiled classes read memory at
  the positions that their attributes say; they are refused, apart from decision trees, whose
  positions are checked after reading;
- functions of ``FUNCTION_PACKAGES``, which compute arrays from arrays. scikit-learn also ships
  functions that read, write or fetch files (``sklearn.datasets``, ``sklearn.tree.export_graphviz``)
  or run what they are given (``sklearn.utils``): these are refused;
- scalar types of numpy, apart from ``numpy.void``, which reserves as much memory as a file asks;
- the short list ``NAMED``.

Names count only in the module that defines them: a module of scikit-learn also holds what it
imports from elsewhere.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np

NAMED = frozenset(
    {
        "builtins.object",
        "collections.OrderedDict",
        "fareg._encoding.AnySizeBoosting",
        "fareg._encoding.FillEmpty",
        "fareg._encoding.PiecewiseLinear",
        "fareg._encoding._all_numbers",
        "fareg._encoding._all_text",
        "fareg._encoding._finite_numbers",
        "fareg._columns.canonical",
        "fareg.classifiers._probabilities.ProbabilityArrays",
        "fareg.classifiers._probabilities.ProbabilityColumns",
        "fareg.workflow._models.AnySizeNetwork",
        "fareg.workflow._models.CodedLabels",
        "fareg.persistence._recipes.Recipe",
        "functools.partial",  # of functions that are themselves trusted
        "lightgbm.basic.Booster",
        "lightgbm.sklearn.LGBMClassifier",
        "numpy.dtype",
        "sklearn.tree._tree.Tree",
        "sklearn.utils._bunch.Bunch",
        "sklearn.utils._metadata_requests.MetadataRequest",
        "sklearn.utils._metadata_requests.MethodMetadataRequest",
        "sklearn.utils.validation.check_array",
        "xgboost.core.Booster",
        "xgboost.sklearn.XGBClassifier",
        "xgboost.sklearn.XGBRFClassifier",
    }
)
# fmt: off
MODEL_PACKAGES = frozenset({
    "_loss", "calibration", "cluster", "compose", "covariance", "cross_decomposition",
    "decomposition", "discriminant_analysis", "dummy", "ensemble", "feature_extraction",
    "feature_selection", "frozen", "gaussian_process", "impute", "isotonic",
    "kernel_approximation", "kernel_ridge", "linear_model", "manifold", "metrics", "mixture",
    "model_selection", "multiclass", "multioutput", "naive_bayes", "neighbors",
    "neural_network", "pipeline", "preprocessing", "random_projection", "semi_supervised",
    "svm", "tree",
})
# fmt: on
FUNCTION_PACKAGES = ("feature_extraction", "feature_selection", "metrics", "preprocessing")


def is_trusted(name: str) -> bool:
    """Tell whether a type or function is trusted, by its full name.

    >>> is_trusted("sklearn.gaussian_process.kernels.RBF"), is_trusted("numpy.number")
    (True, True)
    >>> is_trusted("sklearn.tree._export.export_graphviz"), is_trusted("os.system")
    (False, False)
    """
    return name in NAMED or name in NUMPY_SCALARS or is_shipped(name)


def is_shipped(name: str) -> bool:
    """Tell whether a name is one of scikit-learn's classes or functions that are trusted."""
    package, _, rest = name.partition(".")
    room, *inner = rest.split(".")
    if package != "sklearn" or room not in MODEL_PACKAGES or "tests" in inner:
        return False
    thing = found(name)
    if f"{getattr(thing, '__module__', '')}.{getattr(thing, '__qualname__', '')}" != name:
        return False
    if inspect.isclass(thing):
        return str(inspect.getfile(inspect.getmodule(thing) or thing)).endswith(".py")
    return room in FUNCTION_PACKAGES and inspect.isfunction(thing)


def found(name: str) -> Any:
    """Return what a full name stands for, None if there is no such thing."""
    module, _, attribute = name.rpartition(".")
    try:
        return getattr(importlib.import_module(module), attribute, None)
    except (ImportError, ValueError):  # a name without a module gives a ValueError
        return None


def _subclasses(cls: type[Any]) -> Iterator[type[Any]]:
    yield cls
    for below in cls.__subclasses__():
        yield from _subclasses(below)


NUMPY_SCALARS = frozenset(
    f"numpy.{cls.__name__}"
    for cls in _subclasses(np.generic)
    if cls.__module__ == "numpy" and cls is not np.void
)
