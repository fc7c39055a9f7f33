"""The model file: a fitted classifier without pickle, whole or not at all."""

from fareg.persistence._model_file import describe, load, save, seen_rows

__all__ = ["describe", "load", "save", "seen_rows"]
