"""How numbers, names and file endings are written: one format each, everywhere."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

MISSING = "–"
TOO_FEW = "too few to tell"  # instead of an interval that would look like a verdict
RANDOM_ROW = "a random row of a random cluster"
SHOWN = 8  # names that a sentence lists
SMALLEST_P = 1e-4  # smaller p-values are written as "< 0.0001"
# Unicode categories that control a terminal or cannot be written: control, format (including the
# marks that reverse text), lone surrogates, line separators and paragraph separators.
CONTROLS = ("Cc", "Cf", "Cs", "Zl", "Zp")
JOINERS = "\u200c\u200d"  # format characters that words and emoji need
QUOTED = re.compile(r'"(?:[^"]|"")*"')
# A column and its category, and what rules write in quotation marks: signs and reserved words.
CATEGORY = re.compile(r"(^| and )([^=<>]*[^=<>\s])=(\S.*?)(?= and [^=<>]*[=<>]|\Z)", re.DOTALL)
SIGN = re.compile(r"[=<>{},()]|[^\S ]|  |^ | $|(?:^| )(?:and|or|in|is|not)(?: |$)", re.IGNORECASE)
ITEM = re.compile(rf"(?:(?:^|(?<=[,=]))\s*{QUOTED.pattern}\s*(?=[,=]|$)|[^,])++")


def either(endings: Sequence[str]) -> str:
    """Return file endings in words: ".csv, .txt or .pq"."""
    *others, last = endings
    return f"{', '.join(others)} or {last}" if others else last


CSV, PARQUET = (".csv", ".csv.gz", ".txt"), (".parquet", ".pq")
HTML, JSON, MARKDOWN = (".html", ".htm"), (".json",), (".md",)
TABLE = either(CSV + PARQUET)


def printable(text: object) -> str:
    """Return a text that is safe for a terminal: characters that control it are escaped."""
    return "".join(ascii(c)[1:-1] if _is_control(c) else c for c in str(text))


def printable_json(text: str) -> str:
    """Return equal JSON that is safe for a terminal."""
    return "".join(json.dumps(c)[1:-1] if _is_control(c) else c for c in text)


def _is_control(c: str) -> bool:
    return not c.isprintable() and unicodedata.category(c) in CONTROLS and c not in JOINERS


def quoted(name: str) -> str:
    """Return a name as an item of a list in the shell, in quotation marks if it needs them.

    >>> print(quoted("age"), quoted("age, in years"), quoted('6" pipe'))
    age "age, in years" "6"" pipe"
    """
    is_plain = name and name == name.strip() and not any(sign in name for sign in ',"')
    return name if is_plain else '"' + name.replace('"', '""') + '"'


def unquoted(text: str) -> str:
    """Return the name that :func:`quoted` wrote."""
    text = text.strip()
    return text[1:-1].replace('""', '"') if QUOTED.fullmatch(text) else text


def list_items(text: str) -> list[str]:
    """Split a list in the shell at its commas; items keep their quotation marks.

    A mark opens a quotation only at the start of an item or after an equals sign, and if closed.

    >>> list_items('a, "b, c" ,d="e, f",6"')
    ['a', '"b, c"', 'd="e, f"', '6"']
    """
    return [item.strip() for item in ITEM.findall(text) if item.strip()]


def shown(names: Iterable[Any]) -> str:
    """Return the first few items, separated by commas."""
    texts = [str(name) for name in names]
    return ", ".join(texts[:SHOWN]) + (", ..." if len(texts) > SHOWN else "")


def shortened(text: str, most: int) -> str:
    """Cut a text to at most ``most`` characters: two thirds from its start, one from its end."""
    tail = (most - 1) // 3
    return text if len(text) <= most else f"{text[: most - 1 - tail]}…{text[-tail:]}"


def first_line(error: BaseException) -> str:
    """Return the first line of an error of another library, or its class name if it is empty."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def json_types(value: Any) -> Any:
    """Return nested numbers, texts, lists and dicts as JSON types; NaN becomes None."""
    if isinstance(value, Mapping):
        return {str(key): json_types(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [json_types(inner) for inner in value]
    value = value.item() if hasattr(value, "dtype") and not getattr(value, "ndim", 1) else value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, str | int | bool | None) else str(value)


def repeated(names: list[str]) -> list[str]:
    """Return the names that a list holds more than once."""
    return sorted(name for name, times in Counter(names).items() if times > 1)


# --- numbers; None is missing, and written as a dash ---


def percent(share: float | None, digits: int = 1) -> str:
    """Return a share in percent: "85.7%"."""
    return MISSING if share is None else f"{100 * share:.{digits}f}%"


def confidence(share: float) -> str:
    """Return a confidence in percent, with the decimals that it has: "90%", "97.5%"."""
    return f"{100 * share:.10g}%"


def fraction(share: float) -> str:
    """Return a share as a decimal number with three digits: "0.9"."""
    return f"{share:.3g}"


def count(n: int) -> str:
    """Return a number of things with commas between thousands."""
    return f"{n:,}"


def rows(n: int, noun: str = "row") -> str:
    """Return a number of rows: "1 row", "12,345 rows"."""
    return f"1 {noun}" if n == 1 else f"{count(n)} {noun}s"


def clusters(n: int) -> str:
    """Return a number of clusters: "1 cluster", "12,345 clusters"."""
    return rows(n, "cluster")


def size(labels: float | None) -> str:
    """Return a mean number of labels per set."""
    return MISSING if labels is None else f"{labels:.2f}"


def risk(excess: float | None) -> str:
    """Return an excess risk; what rounds to zero has no sign."""
    return MISSING if excess is None else f"{excess:z.3f}"


def interval(low: float, high: float) -> str:
    """Return an interval of shares: "81.2% to 90.0%"."""
    return f"{percent(low)} to {percent(high)}"


def probability(p: float | None) -> str:
    """Return a p-value with as many decimals as it needs.

    >>> probability(1e-9), probability(0.00123), probability(0.0451), probability(0.7)
    ('< 0.0001', '0.0012', '0.045', '0.70')
    """
    if p is None:
        return MISSING
    if p < SMALLEST_P:
        return f"< {SMALLEST_P:.4f}"
    return f"{p:.4f}" if p < 0.01 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def p_value(p: float | None, name: str = "p") -> str:
    """Return a p-value as an equation: "p = 0.031", "adjusted p < 0.0001"."""
    text = probability(p)
    return f"{name} {text}" if text.startswith("<") else f"{name} = {text}"


def group_name(name: str) -> str:
    """Return the stored name of a group as people read it and as rules are written.

    >>> group_name("sex=Female and age > 60"), group_name("age=[70-80)"), group_name("sex = Female")
    ('sex = Female and age > 60', 'age = "[70-80)"', 'sex = Female')
    """
    if '"' in name:  # a rule, which has its quotation marks
        return name
    return CATEGORY.sub(
        lambda m: m[1] + " = ".join(f'"{t}"' if SIGN.search(t) else t for t in m.group(2, 3)), name
    )


def in_clusters(group: Mapping[str, Any]) -> str:
    """Return the numbers of rows and clusters behind a coverage, nothing without clusters."""
    n = group.get("n_clusters")
    return "" if n is None else f"{rows(group['n'])} in {clusters(n)}"


def coverage_of(group: Mapping[str, Any]) -> str:
    """Return a coverage and its rows; in clusters, a row counts 1/m if its cluster has m rows.

    >>> coverage_of({"coverage": 0.9, "n": 6080}), coverage_of(
    ...     {"coverage": 0.9, "n": 6080, "n_clusters": 4300}
    ... )
    ('90.0% of 6,080 rows', '90.0% for a random row of a random cluster')
    """
    unit = f"of {rows(group['n'])}" if group.get("n_clusters") is None else f"for {RANDOM_ROW}"
    return f"{percent(group['coverage'])} {unit}"


def remarks(group: Mapping[str, Any]) -> list[str]:
    """Return remarks on the coverage of a group before and after calibration."""
    texts = {
        "protected": "protected",
        "verified": "verified to be below, rows and coverage averaged over its tests",
        "made_worse": "made worse",
        "few": TOO_FEW,
    }
    return [text for name, text in texts.items() if group.get(name)]


def tested_on(group: Mapping[str, Any]) -> str:
    """Return on how many rows a finding was tested: "tested on 438 rows on average"."""
    return f"tested on {in_clusters(group) or rows(group['n'])} on average"


def evidence(group: Mapping[str, Any]) -> str:
    """Return the evidence that belongs to a coverage: its rows, interval and p-value.

    Rows are those of a group that random halves found, or those of clusters.

    >>> evidence({"n": 1300, "low": 0.8, "high": 0.85, "n_clusters": 1200, "p_value": 0.001})
    '1,300 rows in 1,200 clusters, 95% interval 80.0% to 85.0%, p = 0.0010'
    """
    is_found = group.get("n_rows") and group.get("n_found")
    basis = f"{rows(group['n_rows'])}, {tested_on(group)}" if is_found else in_clusters(group)
    parts = [basis, f"95% interval {interval(group['low'], group['high'])}"]
    if group.get("adjusted_p_value") is not None:
        parts.append(p_value(group["adjusted_p_value"], "adjusted p"))
    elif group.get("p_value") is not None:
        parts.append(p_value(group["p_value"]))
    return ", ".join(filter(None, parts))
