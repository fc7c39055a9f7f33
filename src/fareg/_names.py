"""Names of columns that are asked for: which a table lacks, and what was meant."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from fareg._validation import InvalidInputError
from fareg._words import quoted, shown

SAME_WORD = 0.75  # share of matching letters from which a name is taken for a slip of the pen


def check_columns(wanted: Sequence[str], names: Sequence[str], where: str) -> None:
    """Refuse column names that a table does not have, with the nearest that it has.

    Columns that are wanted for something else are not proposed.
    """
    missing = [name for name in wanted if name not in names]
    if not missing:
        return
    spelled = {name.casefold(): name for name in names if name not in wanted}
    asked = missing[0].casefold()
    near = difflib.get_close_matches(asked, spelled, n=3, cutoff=0.0)
    is_slip = bool(difflib.get_close_matches(asked, near[:1], cutoff=SAME_WORD))
    told = [quoted(spelled[name]) for name in near]
    hint = f"did you mean {told[0]}?" if is_slip else f"nearest columns: {', '.join(told)}"
    if not told:
        hint = f"add to {shown(names)} what is missing"
    word = "column" if len(missing) == 1 else "columns"
    raise InvalidInputError(f"{where} has no {word} {shown(map(quoted, missing))}; {hint}")
