"""The model file: a fitted classifier without pickle, whole or not at all."""

from fareg.persistence._model_file import ModelFile, describe, load, save
from fareg.persistence._model_file import load_pyfunc as _load_pyfunc  # noqa: F401, MLflow's entry
from fareg.persistence._seen import SeenRows
from fareg.persistence._skops import read_estimator

__all__ = [
    "ModelFile",
    "SeenRows",
    "describe",
    "load",
    "read_estimator",
    "save",
]
