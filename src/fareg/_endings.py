"""What names of files end in, by format."""

from __future__ import annotations

from collections.abc import Sequence

CSV, PARQUET = (".csv", ".csv.gz", ".txt"), (".parquet", ".pq")
HTML, JSON = (".html", ".htm"), (".json",)


def either(endings: Sequence[str]) -> str:
    """Return the endings in words.

    >>> either((".csv", ".txt", ".pq"))
    '.csv, .txt or .pq'
    """
    *others, last = endings
    return f"{', '.join(others)} or {last}" if others else last


TABLE = either(CSV + PARQUET)
