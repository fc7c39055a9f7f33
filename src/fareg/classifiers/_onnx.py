"""Models in ONNX files as classifiers: fed by the names and types of their inputs."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.utils.validation import validate_data

from fareg._columns import as_numbers, as_text, column_names, select_columns
from fareg._files import AnyPath, check_readable
from fareg._labels import check_classes
from fareg._validation import FloatArray, InvalidInputError, NotConformalizedError, check_proba
from fareg._words import first_line
from fareg.calibration import require
from fareg.classifiers._probabilities import ProbabilisticClassifier

# the types of inputs, and the arrays that they are fed with
NUMBERS = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,
}
FRACTIONS = ("tensor(float)", "tensor(double)")
TEXT = "tensor(string)"
LABELS = (TEXT, "tensor(int64)")


class UnknownClassesError(InvalidInputError):
    """Nobody told which label each column of probabilities is about."""


@dataclass(eq=False, repr=False)
class OnnxClassifier(ProbabilisticClassifier):
    """A model in an ONNX file, such as one that another language or library trained.

    ``fit`` trains nothing: it reads the file and finds out which label each output is about. The
    model is then part of this object and of model files. onnxruntime computes it, which runs no
    Python but cannot be checked, so such a file is loaded with
    ``trusted=["onnxruntime.InferenceSession"]``. Needs the extra ``fareg[onnx]``.

    Each input of the model is fed with the column of the same name, as the type that it asks for; a
    single input that takes several columns is fed with ``features``. A missing text is fed as "".

    Parameters
    ----------
    model : path of an ``.onnx`` file
    classes : list of labels, default=None
        The label of each column of probabilities. If None, the model tells them, by the names of
        its probabilities or by the labels that it predicts.
    features : list of names or positions, default=None
        The columns that a single input of several columns takes, in this order; None for all.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    model_ : ndarray of uint8
        The bytes of the file.

    Examples
    --------
    >>> from fareg.classifiers import OnnxClassifier
    >>> model = OnnxClassifier("model.onnx", classes=["no", "yes"])  # model.fit(X) reads the file
    >>> model.classes
    ['no', 'yes']
    """

    model: AnyPath
    _: KW_ONLY
    classes: Any = None
    features: Any = None

    def input_names(self) -> list[str]:
        """Return the names of the inputs of the model in the file."""
        return [str(given.name) for given in session(self._content()).get_inputs()]

    def fit(self, X: Any, y: Any = None) -> Self:
        """Read the file, and learn from its answers to X which label each output is about.

        Parameters
        ----------
        X : frame or array of shape (n_samples, n_features)
        y : ignored
        """
        self.model_ = np.frombuffer(self._content(), dtype=np.uint8).copy()
        validate_data(self, X, skip_check_array=True)
        proba, names, predicted = self._answer(X)
        labels = names if self.classes is None else check_classes(self.classes)
        if labels is None:
            labels = _labels_of_columns(proba, predicted)
        if len(labels) != proba.shape[1]:
            raise InvalidInputError(
                f"{self.model} gives probabilities of {proba.shape[1]} classes, got "
                f"{len(labels)} labels; name one for each"
            )
        self.classes_ = np.asarray(labels)
        return self

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the model's probabilities, shape (n_samples, n_classes)."""
        if not hasattr(self, "model_"):
            raise NotConformalizedError("this OnnxClassifier has not read its model; call fit(X)")
        return check_proba(self._answer(X)[0], "the probabilities of the ONNX model")

    def check(self) -> None:
        """Refuse a fitted state whose model is none, as that of an edited file."""
        content = getattr(self, "model_", None)
        require(isinstance(content, np.ndarray) and content.dtype == np.uint8, "model_")

    def _content(self) -> bytes:
        content = check_readable(self.model).read_bytes()
        session(content)  # refuses what is no model
        return content

    def _answer(self, X: Any) -> tuple[FloatArray, list[Any] | None, Any]:
        """Return probabilities, their labels if the model names them, and predictions if it has."""
        running = session(self.model_.tobytes())
        outputs = running.get_outputs()
        try:
            values = running.run(None, _feeds(running.get_inputs(), X, self.features))
        except InvalidInputError:
            raise
        except Exception as error:  # onnxruntime has an exception for every cause
            raise InvalidInputError(
                f"the ONNX model refuses these rows: {first_line(error)}"
            ) from error
        found = {output.name: (output.type, v) for output, v in zip(outputs, values, strict=True)}
        tables = {n: v for n, (kind, v) in found.items() if kind in FRACTIONS and np.ndim(v) == 2}
        labels = [v for kind, v in found.values() if kind in LABELS and np.ndim(v) == 1]
        predicted = labels[0] if len(labels) == 1 else None
        for kind, rows in found.values():
            if kind.startswith("seq(map("):
                names = list(rows[0])
                return np.array([[row[name] for name in names] for row in rows]), names, predicted
        named_so = [table for name, table in tables.items() if "prob" in name.lower()]
        chosen = named_so if len(named_so) == 1 else list(tables.values())
        if len(chosen) != 1:
            raise InvalidInputError(
                f"the ONNX model must have one output of probabilities, got {', '.join(found)}; "
                "export it with one table of a column per class"
            )
        return np.asarray(chosen[0], dtype=np.float64), None, predicted


def _labels_of_columns(proba: FloatArray, predicted: Any) -> list[Any]:
    """Return the label of each column: what the model predicts where that column is the largest."""
    top, n_classes = proba.argmax(axis=1), proba.shape[1]
    pairs = set() if predicted is None else set(zip(top.tolist(), predicted, strict=True))
    labels = dict(pairs)
    agree = len(pairs) == len(labels)
    if not agree or len(labels) < n_classes:
        raise UnknownClassesError(
            f"the ONNX model tells the label of {len(labels) if agree else 0} of its {n_classes}"
            " columns of probabilities; give classes, the labels in the order of the columns"
        )
    return [labels[j] for j in range(n_classes)]


@lru_cache(maxsize=4)
def session(content: bytes) -> Any:
    """Return what computes a model, on one thread: rows are divided among processes."""
    if find_spec("onnxruntime") is None:
        raise InvalidInputError(
            "an ONNX model needs onnxruntime, which is not installed; install it with: "
            'pip install "fareg[onnx]"'
        )
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # errors are raised, so they need not be printed too
    try:
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has an exception for every cause
        raise InvalidInputError(
            f"this is no ONNX model that onnxruntime can run: {first_line(error)}"
        ) from error


def _feeds(inputs: list[Any], X: Any, features: Any) -> dict[str, Any]:
    """Return the array of each input of a model."""
    names = column_names(X)
    if len(inputs) == 1 and inputs[0].name not in names:
        table = select_columns(X, features, "features")
        width = inputs[0].shape[-1]
        if isinstance(width, int) and width != table.shape[1]:
            raise InvalidInputError(
                f"the ONNX model takes {width} columns, got {table.shape[1]}; name them as "
                "features, in the order in which it was trained"
            )
        fed = [_fed(column, inputs[0].type) for _, column in table.items()]
        return {inputs[0].name: np.column_stack(fed)}
    missing = [given.name for given in inputs if given.name not in names]
    if missing:
        raise InvalidInputError(
            f"the ONNX model has an input {missing[0]}, which is no column of the table; its "
            f"inputs: {', '.join(given.name for given in inputs[:12])}"
        )
    table = select_columns(X, [given.name for given in inputs], "features")
    return {
        given.name: _fed(table[given.name], given.type).reshape((-1, 1)[: len(given.shape)])
        for given in inputs
    }


def _fed(column: pd.Series, kind: str) -> Any:
    """Return a canonical column as the type that an input asks for."""
    if kind == TEXT:
        return as_text(column).fillna("").to_numpy(dtype=object)
    if kind not in NUMBERS:
        raise InvalidInputError(f"inputs of type {kind} cannot be fed from a table")
    numbers = as_numbers(column).to_numpy(dtype=np.float64)
    wrong = np.isnan(numbers) & column.notna().to_numpy()
    if wrong.any():
        raise InvalidInputError(
            f"the ONNX model takes numbers in {column.name}, got {column[wrong].iloc[0]!r}"
        )
    fractions = numbers % 1 != 0  # missing values count as fractions too
    if fractions.any() and kind not in FRACTIONS:
        raise InvalidInputError(
            f"the ONNX model takes whole numbers in {column.name}, got {numbers[fractions][0]:g}; "
            "fill missing values, or export it for numbers with fractions"
        )
    return numbers.astype(NUMBERS[kind])
