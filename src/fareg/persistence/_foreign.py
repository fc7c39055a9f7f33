"""Estimators of other libraries, stored by skops: types must be trusted, and trees are checked."""

from __future__ import annotations

import io
import json
import sys
import zipfile
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from fareg._files import AnyPath, check_readable
from fareg._validation import FaregError, InvalidInputError
from fareg._words import first_line
from fareg.calibration import require
from fareg.persistence._familiar import UnfamiliarError, read_familiar
from fareg.persistence._recipes import as_made, as_recipes, reachable
from fareg.persistence._trust import found, is_trusted

FREE_BYTES = 1 << 26  # bytes that any file may unfold to
MAX_RATIO = 200  # further bytes that a file may unfold to, for each of its own
TREE = "a decision tree"


class UntrustedTypesError(InvalidInputError):
    """A stored estimator holds types that nobody trusted; ``names`` are theirs."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)
        super().__init__(
            f"the estimator holds types that are not trusted: {', '.join(names)}; if you know "
            f"them, load(path, trusted={self.names}), or pass load(path, estimator=your_model)"
        )


def _skops_io() -> Any:
    """Import skops without torch.

    skops lists scikit-learn's estimators by importing every module of scikit-learn; three of these
    wrap array libraries that take seconds to load and have no say here. Only the wrappers are kept
    out, so another thread may import torch itself meanwhile.

    skops also looks for scipy's functions in all modules, in the order of their import. So fareg
    imports ``scipy.special`` before pandas and scikit-learn, and skops loads in half the time.
    """
    wrappers = [f"sklearn.externals.array_api_compat.{name}" for name in ("torch", "dask", "cupy")]
    unneeded = () if "skops.io" in sys.modules else wrappers
    blocked = [name for name in unneeded if name not in sys.modules]
    try:
        # A module that is None cannot be imported.
        sys.modules.update(dict.fromkeys(blocked))  # type: ignore[arg-type]
        import skops.io
    finally:
        for name in blocked:
            sys.modules.pop(name, None)
    return skops.io


def dump(estimator: Any) -> tuple[bytes, list[str]]:
    """Return an estimator in the format of skops, after proof that it can be read back.

    The second item names the types in it that :func:`load` refuses unless they are trusted.
    """
    skops_io = _skops_io()
    stored = as_recipes(estimator)
    packed: bytes = skops_io.dumps(stored, compression=zipfile.ZIP_DEFLATED, compresslevel=6)
    if _unfolds_too_far(packed):
        packed = skops_io.dumps(stored)
    with suppress(UnfamiliarError):
        _finished(read_familiar(packed))
        return packed, []
    names = _types(packed)
    _rebuilt(packed, names)
    return packed, [name for name in names if not is_trusted(name)]


def load(packed: bytes, trusted: Collection[str] = ()) -> Any:
    """Rebuild an estimator from types that are trusted, and check its trees."""
    if _unfolds_too_far(packed):
        raise ValueError("an estimator unfolds to far more bytes than are plausible")
    with suppress(UnfamiliarError):
        return _finished(read_familiar(packed))
    names = _types(packed)
    unknown = [name for name in names if not is_trusted(name) and name not in trusted]
    if unknown:
        raise UntrustedTypesError(unknown)
    return _rebuilt(packed, names)


def read_estimator(path: AnyPath, trusted: Collection[str] = ()) -> Any:
    """Read an estimator from a file of ``skops.io.dump``; only trusted types are made.

    Parameters
    ----------
    path : path of the file
    trusted : list of str, default=()
        Types that it may hold beside those that :func:`fareg.load` trusts. Their code runs.

    Examples
    --------
    >>> import skops.io, tempfile
    >>> from sklearn.dummy import DummyClassifier
    >>> path = tempfile.mkdtemp() + "/model.skops"
    >>> skops.io.dump(DummyClassifier().fit([[0.0], [1.0]], [0, 1]), path)
    >>> read_estimator(path).classes_.tolist()
    [0, 1]
    """
    content = check_readable(path).read_bytes()
    try:
        return load(content, trusted)
    except FaregError:
        raise
    except Exception as error:  # any byte may be wrong, so anything may fail
        raise InvalidInputError(
            f"{path} cannot be read as a file of skops, or does not fit the installed libraries: "
            f"{first_line(error)}; write it again with skops.io.dump(model, path)"
        ) from error


def _types(packed: bytes) -> list[str]:
    """Return the types and functions in a skops file that skops does not trust by itself."""
    return sorted(_skops_io().get_untrusted_types(data=packed))


def _rebuilt(packed: bytes, names: Sequence[str]) -> Any:
    _check_calls(packed, names)
    return _finished(_skops_io().loads(packed, trusted=names))


def _finished(stored: Any) -> Any:
    """Make what is stored as recipes, and check all trees."""
    estimator = as_made(stored)
    check_trees(estimator)
    return estimator


def _check_calls(packed: bytes, names: Sequence[str]) -> None:
    """Refuse a file in which a function stands where a class belongs.

    skops keeps one list of trusted names, and some of its readers call what they find under a
    name. A function may be part of an estimator; it is not called while the estimator is read.
    """
    functions = [name for name in names if not isinstance(found(name), type | None)]
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        root = json.loads(archive.read("schema.json"))
    for node in (thing for thing in reachable(root) if isinstance(thing, dict)):
        name = f"{node.get('__module__')}.{node.get('__class__')}"
        if name in functions and node.get("__loader__") != "FunctionNode":
            raise ValueError(f"the function {name} stands where a class belongs")


def _unfolds_too_far(packed: bytes) -> bool:
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        unfolded = sum(info.file_size for info in archive.infolist())
    return unfolded > FREE_BYTES + MAX_RATIO * len(packed)


def check_trees(estimator: Any) -> None:
    """Refuse decision trees that would send prediction out of bounds or round in circles.

    scikit-learn follows the node numbers of a tree unchecked, and a file may hold any numbers.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.tree import BaseDecisionTree

    for thing in reachable(estimator):
        if isinstance(thing, BaseDecisionTree) and hasattr(thing, "tree_"):
            _check_tree(thing.tree_, thing.n_features_in_)
        elif isinstance(thing, HistGradientBoostingClassifier | HistGradientBoostingRegressor):
            for stage in getattr(thing, "_predictors", ()):
                for predictor in stage:
                    _check_predictor(predictor, thing)
        for tree in np.ravel(np.asarray(getattr(thing, "estimators_", ()), dtype=object)):
            # Forests and boosting check the width of a row, and then ask their trees.
            if isinstance(tree, BaseDecisionTree) and not hasattr(thing, "estimators_features_"):
                require(tree.n_features_in_ == thing.n_features_in_, TREE)


def _check_tree(tree: Any, n_features: int) -> None:
    left, right = tree.children_left, tree.children_right
    require(tree.n_features == n_features, TREE)
    inner = np.flatnonzero(left >= 0)
    _check_nodes(inner, left[inner], right[inner], tree.feature[inner], len(left), n_features)
    require(len(left) > 0 and (left[left < 0] == -1).all(), TREE)


def _check_predictor(predictor: Any, owner: Any) -> None:
    nodes = predictor.nodes
    inner = np.flatnonzero(nodes["is_leaf"] == 0)
    feature = nodes["feature_idx"][inner]
    left, right = (nodes[side][inner].astype(np.int64) for side in ("left", "right"))
    _check_nodes(inner, left, right, feature, len(nodes), owner.n_features_in_)
    categorical = nodes["is_categorical"][inner] != 0
    if categorical.any():
        known = np.asarray(owner._bin_mapper.is_categorical_, dtype=bool)
        require(len(known) == owner.n_features_in_ and known[feature[categorical]].all(), TREE)
        bitsets = nodes["bitset_idx"][inner][categorical]
        require((bitsets < len(predictor.raw_left_cat_bitsets)).all(), TREE)


def _check_nodes(
    node: Any, left: Any, right: Any, feature: Any, n_nodes: int, n_features: int
) -> None:
    # Children come after their parent, so there are no circles.
    require(((left > node) & (right > node) & (left < n_nodes) & (right < n_nodes)).all(), TREE)
    require(((feature >= 0) & (feature < n_features)).all(), TREE)
