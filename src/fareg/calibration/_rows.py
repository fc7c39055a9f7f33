"""The rows of one call: what is known about them is worked out once, when it is first needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from fareg._columns import SensitiveFeatures, select_columns, take_rows
from fareg._hashing import numbered_hashes, row_hashes, uniforms_of
from fareg._validation import FloatArray, IntArray, InvalidInputError, check_proba
from fareg.scores import is_randomised

SLICED = ("proba", "scores", "own_scores", "bits")  # what a part of the rows inherits
BLOCK = 1 << 22  # probabilities that are scored at a time: 32 megabytes


@dataclass(frozen=True, eq=False)
class GivenProba:
    """Class probabilities beside a table, left where they are, often in a file."""

    array: Any  # (n, n_classes), memory-mapped or not
    picked: IntArray | None = None  # which rows of the array are meant; None for all
    first: int = 0  # the number of the first row, for messages

    def take(self, chosen: IntArray | slice) -> GivenProba:
        """Return some of the rows, without reading them."""
        if self.picked is not None:
            return GivenProba(self.array, self.picked[chosen])
        if isinstance(chosen, slice):
            return GivenProba(self.array[chosen], None, self.first + chosen.start)
        return GivenProba(self.array, chosen)

    def values(self) -> Any:
        """Read the rows as they are."""
        return self.array if self.picked is None else self.array[self.picked]


T = TypeVar("T")


class _Scored(cached_property[T]):
    """What does not depend on the sensitive features: the original rows work it out for all."""

    def __get__(self, rows: Any, owner: Any = None) -> Any:
        if rows is None or rows.original is None:
            return super().__get__(rows, owner)
        return getattr(rows.original, str(self.attrname))


@dataclass(frozen=True, eq=False)
class Rows:
    """A table with everything that scores and calibrations ask of it."""

    X: Any  # frame or array of shape (n_samples, n_features)
    ask: Callable[[Any], Any]  # ``ask(X)`` returns class probabilities
    score: Callable[[FloatArray, Any], Any]  # ``score(proba, u)`` returns conformity scores
    selection: SensitiveFeatures  # the sensitive features
    key: int  # seeds the random numbers of the rows
    codes: IntArray | None = None  # column of each true label, -1 for an unknown one
    clusters: Any = None  # (n_samples,) ids of people or places with several rows
    hidden: tuple[str, ...] = ()  # columns of X that hold probabilities and never define groups
    given: GivenProba | None = None  # class probabilities beside X, which is then not asked for
    about: Any = None  # frame of the sensitive features beside X, if X does not hold them
    ids: Any = None  # (n_samples,) texts that tell whose row it is; None if nobody told
    role: str = "prediction"  # what the rows are for: a key of ``fareg._hashing.ROLES``
    before: IntArray | None = None  # equal rows before each; None if all rows are here
    part_of: tuple[Rows, Any] | None = None  # the rows that these were taken from, and which
    original: Rows | None = None  # the same rows, if these select other sensitive features

    def __len__(self) -> int:
        return len(self.X)

    @property
    def n_people(self) -> int:
        """Number of clusters, or of rows if they have none."""
        return len(self) if self.clusters is None else len(np.unique(self.clusters))

    @cached_property
    def columns(self) -> pd.DataFrame:
        """The sensitive features in canonical form."""
        table = self.X if self.about is None else self.about
        return select_columns(table, self.selection, hidden=self.hidden)

    @property
    def n_classes(self) -> int:
        """Number of columns of probabilities."""
        table = self.proba if self.given is None else self.given.array
        return int(table.shape[1])

    @_Scored
    def proba(self) -> FloatArray:
        """Class probabilities, of shape (n_samples, n_classes)."""
        if self.given is None:
            return check_proba(self.ask(self.X))
        return check_proba(self.given.values(), first_row=self.given.first)

    @property
    def uniforms(self) -> FloatArray:
        """One number in [0, 1) per row, which makes a randomised score continuous."""
        return uniforms_of(self.bits)

    def more_uniforms(self, shift: int) -> FloatArray:
        """Return another number in [0, 1) per row for every shift."""
        return uniforms_of(self.bits, shift)

    @_Scored
    def bits(self) -> Any:
        """64 random bits per row, by the key and by what tells the row from all others."""
        if self.part_of is not None:  # equal rows are numbered in the whole call
            rows, chosen = self.part_of
            return rows.bits[chosen]
        before = self.before
        if self.ids is not None and self.role == "prediction":
            before = np.zeros(len(self), dtype=np.int64)  # the answer to a person is one answer
        return numbered_hashes(self.hashes, self.role, before)

    @_Scored
    def hashes(self) -> Any:
        """64 bits per row that rows have in common if they are equal.

        Their values and ids count, and their labels if they teach or calibrate: rows that are equal
        in all of this may change places, and nothing changes.
        """
        codes = None if self.role == "prediction" else self.codes
        if self.given is None:
            return row_hashes(self.X, self.key, None, self.ids, codes)
        parts = (
            row_hashes(
                take_rows(self.X, place),
                self.key,
                self.given.take(place).values(),
                None if self.ids is None else self.ids[place],
                None if codes is None else codes[place],
            )
            for place in self._places()
        )
        return np.concatenate(list(parts))

    def blocks(self) -> Iterator[tuple[slice, Rows]]:
        """Yield neighbouring rows, so few that all their scores fit into memory, and their place.

        Given probabilities are read one block at a time. What a block works out is forgotten.
        """
        places = self._places()
        for place in places:
            yield place, (self if len(places) == 1 else self.take(place))

    def _places(self) -> list[slice]:
        size = max(1, BLOCK // max(1, self.n_classes))
        starts = range(0, max(1, len(self)), size)
        return [slice(start, min(start + size, len(self))) for start in starts]

    @_Scored
    def scores(self) -> FloatArray:
        """Conformity scores of every label, of shape (n_samples, n_classes)."""
        u = self.uniforms if is_randomised(self.score) else None
        scores = np.asarray(self.score(self.proba, u), dtype=np.float64)
        if scores.shape != self.proba.shape or np.isnan(scores).any():
            raise InvalidInputError(
                f"conformity_score must return an array of shape {self.proba.shape} without NaN, "
                f"got shape {scores.shape}"
            )
        return scores

    @_Scored
    def own_scores(self) -> FloatArray:
        """Scores of the true labels; a label that the estimator does not know is in no set."""
        own = np.full(len(self), np.inf)
        for place, part in self.blocks():
            codes = part.labels
            scores = part.scores[np.arange(len(codes)), codes]
            own[place] = np.where(codes >= 0, scores, np.inf)
        return own

    @cached_property
    def top(self) -> tuple[IntArray, FloatArray]:
        """The column of the most probable label of each row, and its probability."""
        parts = [(part.proba.argmax(axis=1), part.proba.max(axis=1)) for _, part in self.blocks()]
        codes, probabilities = zip(*parts, strict=True)
        return np.concatenate(codes), np.concatenate(probabilities)

    @property
    def labels(self) -> IntArray:
        """The column of each true label."""
        if self.codes is None:
            raise InvalidInputError("these rows have no labels; pass y to calibrate on them")
        return self.codes

    def problems(self, label_conditional: bool) -> tuple[IntArray | None, int]:
        """Return the label of each row and how many labels are calibrated on their own.

        These are None and 1 if all labels are calibrated together.
        """
        return (self.labels, self.n_classes) if label_conditional else (None, 1)

    def once(self, name: str, compute: Callable[[], Any]) -> Any:
        """Return what ``compute`` returns, computed at the first call with this name."""
        if name not in self._known:
            self._known[name] = compute()
        return self._known[name]

    @cached_property
    def _known(self) -> dict[str, Any]:
        return {}

    def in_role(self, role: str) -> Rows:
        """Return the same rows with the random numbers that they would have in another role."""
        other = replace(self, role=role, original=None)
        if "proba" in vars(self):
            vars(other)["proba"] = self.proba
        return other

    def selecting(self, selection: SensitiveFeatures) -> Rows:
        """Return the same rows with other sensitive features."""
        return replace(self, selection=selection, original=self._original)

    @property
    def _original(self) -> Rows:
        return self if self.original is None else self.original

    def take(self, chosen: IntArray | slice) -> Rows:
        """Return some of the rows, with what is already known about them."""
        parts = {
            "X": take_rows(self.X, chosen),
            "codes": None if self.codes is None else self.codes[chosen],
            "clusters": None if self.clusters is None else self.clusters[chosen],
            "given": None if self.given is None else self.given.take(chosen),
            "about": None if self.about is None else take_rows(self.about, chosen),
            "ids": None if self.ids is None else self.ids[chosen],
        }
        part = replace(self, original=None, part_of=(self._original, chosen), **parts)
        known = vars(self._original)
        for name in SLICED:
            if name in known:
                vars(part)[name] = known[name][chosen]
        if "columns" in vars(self):
            vars(part)["columns"] = self.columns.iloc[chosen].reset_index(drop=True)
        return part


def require(condition: Any, part: str) -> None:
    """Refuse a stored model whose parts contradict each other."""
    if not condition:
        raise ValueError(f"its parts contradict each other, see {part}")
