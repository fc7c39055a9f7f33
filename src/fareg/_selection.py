"""Which columns of a table are meant: by name, by position, or by a function of the table."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from fareg._columns import CodedTable, canonical, code_table, column_names, columns_at, is_frame
from fareg._validation import InvalidInputError
from fareg._words import quoted, repeated, shown

SensitiveFeatures = Any  # names, positions, a function of X, a frame beside X, or None for all
SAME_WORD = 0.75  # share of matching letters from which a name is taken for a slip of the pen


def select_columns(
    X: Any,
    selection: SensitiveFeatures,
    name: str = "sensitive_features",
    *,
    hidden: Sequence[str] = (),
) -> pd.DataFrame:
    """Return the selected columns in canonical form.

    ``selection`` holds names, positions (negative ones count from the end), or is a frame beside
    X or a function of X that returns columns; None means all but the ``hidden`` ones, columns of
    probabilities that nothing may select. Errors call the selection ``name``.
    """
    if callable(selection) or is_frame(selection):
        source = X.source if isinstance(X, CodedTable) else X
        chosen: Any = selection(source) if callable(selection) else selection
        if not is_frame(chosen):
            chosen = np.atleast_1d(np.asarray(chosen))
            chosen = chosen[:, None] if chosen.ndim == 1 else chosen
        if len(chosen) != len(X):
            raise InvalidInputError(
                f"{name} must have one row per row of X, got {len(chosen)} for {len(X)}"
            )
        names = column_names(chosen)
    else:
        columns = column_names(X)
        if selection is None:
            positions = [p for p, column in enumerate(columns) if column not in hidden]
            if hidden and not positions:
                raise InvalidInputError(
                    "X holds only probabilities, which define no groups; add columns that tell who "
                    "the rows are about, or use SplitConformalClassifier"
                )
        else:
            positions = selected_positions(X, selection, name)
        names = [columns[p] for p in positions]
        chosen = code_table(columns_at(X, positions), names)
    if taken := [column for column in names if column in hidden]:
        raise InvalidInputError(
            f"{name} must not hold columns of probabilities, got {', '.join(taken)}; leave them out"
        )
    return canonical(chosen)


def selected_positions(X: Any, selection: Any, name: str = "sensitive_features") -> list[int]:
    """Return the positions of the columns that names or positions select; X must have them."""
    names = column_names(X)
    positions = []
    for item in _items(selection, name):
        if isinstance(item, str) and item in names:
            positions.append(names.index(item))
        elif _is_position(item) and -len(names) <= item < len(names):
            positions.append(int(item) % len(names))
        else:
            raise InvalidInputError(
                f"{name} names {item!r}, which is no column of X; columns: {shown(names)}"
            )
    if twice := repeated([names[p] for p in positions]):
        raise InvalidInputError(f"{name} names {', '.join(twice)} twice; once is enough")
    return positions


def _items(selection: Any, name: str) -> list[Any]:
    is_one = np.isscalar(selection) or not np.iterable(selection)
    items = [selection] if is_one else list(selection)
    if not items:
        raise InvalidInputError(f"{name} must name at least one column, got none")
    return items


def _is_position(item: Any) -> bool:
    # True and False are refused, because a mask of columns is no list of positions.
    return isinstance(item, int | np.integer) and not isinstance(item, bool)


def check_selection(name: str, selection: Any) -> None:
    """Refuse what can select no columns of any table."""
    if is_frame(selection):
        got = f"a table; pass it beside the rows: fit(X, y, {name}=table)"
    elif (
        selection is None
        or callable(selection)
        or all(isinstance(item, str) or _is_position(item) for item in _items(selection, name))
    ):
        return
    else:
        got = repr(selection)
    raise InvalidInputError(
        f"{name} must be column names, positions, a function of X or None, got {got}"
    )


def check_columns(wanted: Sequence[str], names: Sequence[str], where: str) -> None:
    """Refuse column names that a table does not have, with the nearest that it has.

    Columns that are wanted for something else are not proposed.
    """
    missing = [name for name in wanted if name not in names]
    if not missing:
        return
    others = {name.casefold(): name for name in names if name not in wanted}
    near = difflib.get_close_matches(missing[0].casefold(), others, n=3, cutoff=0.0)
    proposed = [quoted(others[name]) for name in near]
    hint = f"nearest columns: {', '.join(proposed)}"
    if difflib.get_close_matches(missing[0].casefold(), near[:1], cutoff=SAME_WORD):
        hint = f"did you mean {proposed[0]}?"
    if not proposed:
        hint = f"add to {shown(names)} what is missing"
    word = "column" if len(missing) == 1 else "columns"
    raise InvalidInputError(f"{where} has no {word} {shown(map(quoted, missing))}; {hint}")
