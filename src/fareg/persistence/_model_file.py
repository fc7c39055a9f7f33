"""Save and load: state as JSON, arrays as safetensors, foreign estimators by skops."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import safetensors.numpy

from fareg._columns import column_names
from fareg._files import AnyPath
from fareg._validation import FaregError, InvalidInputError, NotConformalizedError, require, warn
from fareg._words import first_line, json_types, shown
from fareg.classifiers import ConformalClassifier, SplitConformalClassifier
from fareg.persistence import _skops
from fareg.persistence._archive import Archive, write_archive
from fareg.persistence._codec import CLASSIFIERS, LEFT_OUT, READERS, Reader, Writer
from fareg.persistence._seen import SeenRows

ARRAYS, FOREIGN, SEEN = "arrays.safetensors", "foreign.skops", "seen.safetensors"
MANIFEST_TYPES: dict[str, Any] = {
    "class": str,
    "n_features": int,
    "columns": list | None,
    "classes": list,
    "versions": dict,
    "metadata": dict,
}
LIBRARIES = ("fareg", "numpy", "pandas", "scikit-learn", "skops", "xgboost", "lightgbm")
# Users may add notes of any kind. Those of fareg are recognised by their keys: the notes of fareg
# fit, which fareg calibrate keeps, and the note of fareg calibrate.
FIT_KEYS = {"columns", "target", "data", "estimator", "date", "seed"}
CALIBRATED_KEYS = {"data", "rows", "left_out"}
COLUMN_KINDS = {"number", "text", "date"}


@dataclass(frozen=True, eq=False)
class ModelFile:
    """A model file that was opened once; the classifier is made when it is first needed.

    Other processes get its path and its SHA-256. Each opens the file once for all its tasks, and
    refuses a file that has changed in the meantime.

    Attributes
    ----------
    classifier : the fitted classifier, as :func:`fareg.load` returns it
    columns : dict of name -> kind, or None
        The columns that the classifier needs, including a separate frame of sensitive features,
        and what they hold: ``"number"``, ``"text"`` or ``"date"``; None if it was fitted on an
        array without names.
    notes : dict
        The ``metadata`` that was saved.
    seen : SeenRows or None
        A fingerprint of the rows that trained or calibrated the model.
    sha256 : str

    Examples
    --------
    >>> import tempfile, fareg
    >>> from fareg.datasets import make_synthetic
    >>> from fareg.persistence import ModelFile
    >>> data = make_synthetic(1000, random_state=0)
    >>> clf = fareg.SplitConformalClassifier(random_state=0).fit(data.X[:900], data.y[:900])
    >>> path = tempfile.mkdtemp() + "/model.fareg"
    >>> fareg.save(clf, path, metadata={"by": "me"}, seen=(data.X[:900], data.y[:900]))
    >>> file = ModelFile.open(path)
    >>> file.notes, list(file.columns) == list(data.X), file.describe()["n_calibration"]
    ({'by': 'me'}, True, 450)
    >>> int(file.seen.contains(data.X, data.y).sum())
    900
    """

    path: str
    trusted: tuple[str, ...]
    estimator: Any  # the fitted model that the caller passed, if any
    archive: Archive

    @classmethod
    def open(
        cls,
        path: AnyPath,
        *,
        sha256: str | None = None,
        trusted: Sequence[str] | None = None,
        estimator: Any = None,
    ) -> ModelFile:
        """Read a model file and check its checksums; see :func:`fareg.load`."""
        if isinstance(trusted, str):
            raise InvalidInputError(f"trusted must be a list of type names, got {trusted!r}")
        with _one_error(path):
            archive = Archive.read(path, sha256)
            _check_manifest(archive.manifest)
        return cls(str(path), tuple(trusted or ()), estimator, archive)

    def __reduce__(self) -> Any:
        return _reopen, (str(Path(self.path).resolve()), self.sha256, self.trusted)

    @property
    def sha256(self) -> str:
        return self.archive.sha256

    @property
    def notes(self) -> dict[str, Any]:
        notes: dict[str, Any] = self.archive.manifest["metadata"]
        return notes

    @cached_property
    def fit_notes(self) -> dict[str, Any]:
        """The notes of ``fareg fit``; {} if there are none, or if a user wrote others."""
        notes, columns = self.notes, self.notes.get("columns")
        is_from_fit = (
            notes.keys() >= FIT_KEYS
            and isinstance(columns, dict)
            and list(columns) == self.archive.manifest["columns"]
            and set(map(str, columns.values())) <= COLUMN_KINDS
            and ("verdict" not in notes or _is_verdict(notes["verdict"]))
        )
        return notes if is_from_fit else {}

    @property
    def calibrated_note(self) -> dict[str, Any]:
        """The note of ``fareg calibrate``; {} if there is none."""
        note = self.notes.get("calibrated")
        return note if isinstance(note, dict) and note.keys() >= CALIBRATED_KEYS else {}

    @cached_property
    def seen(self) -> SeenRows | None:
        with _one_error(self.path):
            content = self.archive.entries.get(SEEN)
            return None if content is None else SeenRows.from_bytes(content)

    @cached_property
    def columns(self) -> dict[str, str] | None:
        # The notes of ``fareg fit`` cover all rows of the table, the classifier saw only some.
        kinds = self.fit_notes.get("columns", self.classifier.column_kinds_)
        return None if kinds is None else {**kinds, **self.beside}

    @property
    def beside(self) -> dict[str, str]:
        """The kinds of sensitive features in a separate frame, if sets depend on them."""
        kinds = getattr(self.classifier, "sensitive_kinds_", None)
        split = isinstance(self.classifier, SplitConformalClassifier)
        return {} if kinds is None or split else kinds

    @cached_property
    def classifier(self) -> Any:
        with _one_error(self.path):
            return self._build()

    def _build(self) -> Any:
        state, estimator = self.archive.manifest["state"], self.estimator
        stored = state["fitted"]["estimator_"]
        if estimator is not None:
            if stored["$"] == "object":
                raise InvalidInputError(
                    f"{self.path} reads its probabilities from the table; load it without estimator"
                )
            fitted = {**state["fitted"], "estimator_": LEFT_OUT}
            parameters = {**state["parameters"], "estimator": LEFT_OUT}
            state = {**state, "fitted": fitted, "parameters": parameters}
        elif stored == LEFT_OUT:
            raise InvalidInputError(
                f"{self.path} holds no estimator; pass the fitted one: load(path, estimator=model)"
            )
        packed = self.archive.entries.get(FOREIGN, b"")
        if unknown := [name for name in _untrusted(state, packed) if name not in self.trusted]:
            raise _skops.UntrustedTypesError(unknown)
        foreign = functools.cache(lambda: _skops.load(packed, self.trusted))
        clf = Reader(self._arrays, self.archive.size, foreign, estimator).read(state)
        require(type(clf).__name__ in CLASSIFIERS and clf.__sklearn_is_fitted__(), "the classifier")
        _check_estimator(clf)
        for key, value in _header(clf).items():
            require(self.archive.manifest[key] == value, f"{key} of the manifest")
        clf.check()
        return clf

    def describe(self) -> dict[str, Any]:
        """Describe the file without making the estimator.

        Returns
        -------
        dict
            ``class``, ``parameters``, ``columns``, ``classes``, ``versions``, ``metadata``,
            ``has_estimator``, ``needs_estimator`` (whether it was left out, so that you must pass
            it to :func:`fareg.load`; a model that reads probabilities neither has nor needs one),
            ``untrusted`` (types that you must trust in :func:`fareg.load`), ``n_calibration``,
            ``n_calibration_clusters`` (None if there were no clusters), ``bytes``, ``sha256``, and
            for FaReG ``groups``, a list of dicts.
        """
        with _one_error(self.path):
            manifest = self.archive.manifest
            fitted, parameters = manifest["state"]["fitted"], manifest["state"]["parameters"]
            estimator = fitted["estimator_"]
            is_left_out = estimator == LEFT_OUT
            is_reader = isinstance(estimator, dict) and estimator.get("class") in READERS
            summary = {
                **{key: manifest[key] for key in MANIFEST_TYPES},
                "parameters": {k: _printable(v) for k, v in parameters.items() if k != "estimator"},
                "n_calibration": fitted["n_calibration_"],
                "n_calibration_clusters": fitted["n_calibration_clusters_"],
                "has_estimator": not (is_left_out or is_reader),
                "needs_estimator": is_left_out,
                "untrusted": _untrusted(manifest["state"], self.archive.entries.get(FOREIGN, b"")),
                "bytes": self.archive.size,
                "sha256": self.sha256,
            }
            require(type(summary["n_calibration"]) is int, "n_calibration_")
            require(isinstance(summary["n_calibration_clusters"], int | None), "n_calibration_")
            reader = Reader(self._arrays, self.archive.size)
            if isinstance(parameters.get("protect"), list | dict):  # the words of rules
                rules = reader.read(parameters["protect"])
                rules = rules if isinstance(rules, list | tuple) else [rules]
                rules = [getattr(rule, "rule", rule) for rule in rules]
                summary["parameters"]["protect"] = [getattr(rule, "text", "") for rule in rules]
            if "groups_" in fitted:
                groups = reader.read(fitted["groups_"])
                require(isinstance(groups, pd.DataFrame), "groups_")
                summary["groups"] = json_types(groups.to_dict("records"))
            return summary

    @cached_property
    def _arrays(self) -> dict[str, Any]:
        # Copy the arrays: views of an entry's bytes are read-only.
        arrays = safetensors.numpy.load(self.archive.entries.pop(ARRAYS))
        return {name: array.copy() for name, array in arrays.items()}


@functools.lru_cache(maxsize=1)
def _reopen(path: str, sha256: str, trusted: tuple[str, ...]) -> ModelFile:
    """Open a model file in another process, once for all tasks."""
    return ModelFile.open(path, sha256=sha256, trusted=trusted)


def save(
    clf: ConformalClassifier,
    path: AnyPath,
    *,
    include_estimator: bool = True,
    metadata: Mapping[str, Any] | None = None,
    seen: tuple[Any, Any] | SeenRows | None = None,
) -> None:
    """Write a fitted classifier to a file, whole or not at all.

    The file is a zip of ``manifest.json`` (parameters, columns, classes, library versions, and the
    estimator), ``arrays.safetensors`` (all numbers) and, for estimators whose shape fareg does not
    know, ``foreign.skops``, which is read only if it is trusted. It contains no pickle.

    Parameters
    ----------
    clf : fitted classifier of this package
    path : path of the file, usually ``*.fareg``
        An existing file is replaced, but stays as it is if writing fails.
    include_estimator : bool, default=True
        If False, you must pass the estimator to ``load``. An estimator that skops cannot store is
        left out, with a warning.
    metadata : mapping, default=None
        Your notes (names, numbers, lists), shown by ``fareg info``.
    seen : tuple (X, y) or SeenRows, default=None
        Rows that trained or calibrated the model, with their labels. The file stores a fingerprint
        of them, eight bytes a row, and ``fareg audit`` leaves them out. If more than a tenth of
        them equal another one, it stores none.

    Examples
    --------
    >>> import tempfile, fareg
    >>> from fareg.datasets import make_synthetic
    >>> data = make_synthetic(1000, random_state=0)
    >>> clf = fareg.SplitConformalClassifier(random_state=0).fit(data.X, data.y)
    >>> path = tempfile.mkdtemp() + "/model.fareg"
    >>> fareg.save(clf, path)
    >>> bool((fareg.load(path).predict_set(data.X) == clf.predict_set(data.X)).all())
    True
    """
    if type(clf) is not CLASSIFIERS.get(type(clf).__name__):
        raise InvalidInputError(
            f"save takes a classifier of fareg, got {type(clf).__module__}.{type(clf).__name__}"
        )
    if not clf.__sklearn_is_fitted__():
        raise NotConformalizedError(
            f"this {type(clf).__name__} is not conformalized yet; call fit(X, y) before save"
        )
    models = (clf.estimator_, clf.estimator)
    writer = Writer(() if include_estimator else models)
    state = writer.write(clf, "clf")
    _check_savable(clf)
    entries: dict[str, bytes] = {}
    if writer.foreign:
        try:
            entries[FOREIGN] = _skops.dump(writer.foreign)
        except MemoryError:
            raise
        except Exception as error:  # an estimator may raise anything
            warn(
                f"the estimator cannot be stored ({first_line(error)}) and is left out of the "
                "file; load it with fareg.load(path, estimator=model)"
            )
            writer = Writer(models)
            state = writer.write(clf, "clf")
    if names := _untrusted(state, entries.get(FOREIGN, b"")):
        warn(
            "loading this model runs code of these types, so you must trust them by name "
            f"(trusted= in fareg.load): {','.join(names)}"
        )
    if seen is not None and not isinstance(seen, SeenRows):
        seen = SeenRows.of(*_check_seen(seen, clf.n_features_in_))
    if seen is not None:
        entries[SEEN] = seen.to_bytes()
    entries[ARRAYS] = safetensors.numpy.save(writer.arrays)
    manifest = {
        **_header(clf),
        "versions": _versions(),
        "metadata": _json_notes(metadata or {}),
        "state": state,
    }
    write_archive(path, manifest, entries)


def load(
    path: AnyPath,
    *,
    trusted: Sequence[str] | None = None,
    estimator: Any = None,
    sha256: str | None = None,
) -> Any:
    """Read a classifier that :func:`save` wrote.

    Nothing in the file is executed. The usual models, pipelines and encoders of scikit-learn and
    fareg are made from a table of allowed shapes, after checks that they never read outside their
    own memory. Every other type is refused by name.

    Parameters
    ----------
    path : path of the file
    trusted : list of str, default=None
        Names of further types that the estimator may hold, such as ``"my_module.MyModel"``. Their
        code runs, so do this only with files from people whom you trust.
    estimator : fitted classifier, default=None
        The wrapped estimator, if the file has none, or to replace the one in the file.
    sha256 : str, default=None
        The SHA-256 that the file must have, as ``fareg fit`` and ``fareg info`` show it. It is
        compared before anything in the file is read. The checksums inside a file detect damage;
        only this detects a file that somebody else wrote.

    Returns
    -------
    clf : the fitted classifier, with the same answers to the bit

    Raises
    ------
    FaregError
        If the file is damaged, cut short, not a model file, written by another format of fareg, or
        holds types that you do not trust.

    Examples
    --------
    >>> import fareg
    >>> try:
    ...     fareg.load("no-such-file.fareg")
    ... except fareg.FaregError as error:
    ...     print(error)
    cannot read no-such-file.fareg: there is no such file; check the path
    """
    return ModelFile.open(path, sha256=sha256, trusted=trusted, estimator=estimator).classifier


def describe(path: AnyPath, *, sha256: str | None = None) -> dict[str, Any]:
    """Describe a model file; see :meth:`ModelFile.describe`.

    Examples
    --------
    >>> import fareg
    >>> from fareg.persistence import describe
    >>> try:
    ...     describe("no-such-file.fareg")
    ... except fareg.FaregError as error:
    ...     print(error)
    cannot read no-such-file.fareg: there is no such file; check the path
    """
    return ModelFile.open(path, sha256=sha256).describe()


@dataclass(frozen=True)
class TableModel:
    """A classifier with MLflow's generic interface: tables in, tables of answers out."""

    clf: Any

    def predict(self, model_input: Any, params: Any = None) -> Any:
        """Return ``predict_table`` of the rows."""
        return self.clf.predict_table(model_input)


def load_pyfunc(path: AnyPath, model_config: Mapping[str, Any] | None = None) -> TableModel:
    """Load a model file for MLflow; ``model_config`` may hold ``trusted`` and ``sha256``."""
    options = {name: (model_config or {}).get(name) for name in ("trusted", "sha256")}
    return TableModel(load(path, **options))


@contextmanager
def _one_error(path: Any) -> Iterator[None]:
    """Turn any error from the content of a file into one that names the file."""
    try:
        yield
    except (FaregError, MemoryError):
        raise
    except Exception as error:  # any byte may have changed, so anything may fail
        raise InvalidInputError(
            f"{path} is damaged or does not fit the installed libraries "
            f"({type(error).__name__}: {first_line(error)}); save the model again"
        ) from error


def _is_verdict(note: Any) -> bool:
    """Return whether a note has the texts of a verdict."""
    if not isinstance(note, dict) or not isinstance(note.get("next_steps"), list):
        return False
    texts = [note.get("label"), note.get("sentence"), *note["next_steps"]]
    return all(isinstance(text, str) for text in texts)


def _header(clf: ConformalClassifier) -> dict[str, Any]:
    """Return what the manifest holds of a classifier in addition to its state."""
    names = getattr(clf, "feature_names_in_", None)
    return {
        "class": type(clf).__name__,
        "n_features": int(clf.n_features_in_),
        "columns": None if names is None else [str(name) for name in names],
        "classes": [str(label) for label in clf.classes_],
    }


def _check_savable(clf: ConformalClassifier) -> None:
    """Refuse to save a classifier that could not be loaded again."""
    changed = clf.changed_parameters()
    reason = f"{', '.join(changed)} was changed after fit and has no effect yet" if changed else ""
    try:
        if not changed:
            clf.check()
            _check_estimator(clf)
    except ValueError as error:
        reason = str(error).partition(";")[0]
    if reason:
        raise InvalidInputError(
            f"cannot save this {type(clf).__name__} ({reason}); call fit(X, y) again"
        )


def _check_manifest(manifest: dict[str, Any]) -> None:
    """Refuse a manifest whose entries have other types than ``save`` writes."""
    for key, kind in MANIFEST_TYPES.items():
        require(isinstance(manifest[key], kind), f"{key} of the manifest")
    texts = [*manifest["classes"], *(manifest["columns"] or ()), *manifest["versions"].values()]
    require(all(isinstance(text, str) for text in texts), "the names in the manifest")


def _untrusted(state: dict[str, Any], foreign: bytes) -> list[str]:
    """Return the types in a file that must be trusted by name, without making anything."""
    is_needed = any(node.get("$") == "foreign" for node in _skops.nodes(state))
    return _skops.named_types(foreign) if foreign and is_needed else []


def _check_estimator(clf: ConformalClassifier) -> None:
    """Refuse an estimator that is not the one the classifier was calibrated with."""
    model = clf.estimator_
    if not hasattr(model, "predict_proba") or not hasattr(model, "classes_"):
        raise InvalidInputError(
            f"estimator must be a fitted classifier with predict_proba, got {type(model).__name__}"
        )
    if not np.array_equal(np.asarray(model.classes_), clf.classes_):
        raise InvalidInputError(
            f"estimator has classes {shown(model.classes_)}, the file was saved with "
            f"{shown(clf.classes_)}; pass the estimator that was calibrated"
        )
    excluded = getattr(clf, "excluded_", [])
    n_read = clf.n_features_in_ - len(excluded)
    n_features = getattr(model, "n_features_in_", n_read)
    # an estimator may pick columns by name: those that it ignores define groups, or are missing
    known = getattr(clf, "feature_names_in_", ()), getattr(model, "feature_names_in_", None)
    given, names = ([] if some is None else list(map(str, some)) for some in known)
    read = {name for p, name in enumerate(given) if p not in excluded}
    picks = bool(read and names) and (read >= set(names) or read <= set(names))
    if n_features != n_read and not picks:
        raise InvalidInputError(
            f"estimator takes {n_features} features, the calibration rows had {n_read}; pass the "
            "estimator that was calibrated"
        )


def _check_seen(seen: Any, n_features: int) -> tuple[Any, Any]:
    """Return the rows and labels that a model has seen, after checks."""
    X, y = seen if isinstance(seen, tuple) and len(seen) == 2 else ([], None)
    if y is None or len(column_names(X)) != n_features or len(X) != len(y):
        raise InvalidInputError(
            f"seen must be a pair (X, y) of rows with the {n_features} columns of the model and a "
            f"label for each, got {type(seen).__name__}"
        )
    return X, y


@functools.cache
def _versions() -> dict[str, str]:
    found = {}
    for name in LIBRARIES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _printable(node: Any) -> Any:
    """Return a stored parameter in a form that can be printed."""
    if isinstance(node, list):
        return [_printable(item) for item in node]
    if not isinstance(node, dict) or "$" not in node:
        return node
    if node["$"] == "tuple":
        return _printable(node["items"])
    return node.get("name") or node.get("class") or node["$"]


def _json_notes(metadata: Mapping[str, Any]) -> Any:
    """Return notes as JSON types; arrays become lists, and NaN becomes None."""
    try:
        text = json.dumps(dict(metadata), default=lambda value: value.tolist())
    except (TypeError, ValueError, AttributeError) as error:
        raise InvalidInputError(
            f"metadata must hold text, numbers, lists and dicts ({first_line(error)})"
        ) from error
    return json_types(json.loads(text))
