"""What an audit found, as numbers, words, JSON and a report."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import numpy as np
import pandas as pd

from fareg._files import replacing
from fareg.audit._verification import VerifiedGroup

MAX_SHOWN = 200  # rows of a table in the summary, worst first
FEW_ROWS = 10  # smaller levels and pairs are left out of the report's tables
SMALLEST_P = 1e-16  # smaller p-values are not told apart in words

STATUS = {
    "finding": "Under-covered group found",
    "low": "Coverage below target",
    "pass": "No under-covered group found",
    "unclear": "Too few rows to tell",
}


@dataclass(frozen=True, eq=False, repr=False)
class AuditResult:
    """The outcome of :func:`fareg.audit`.

    Attributes
    ----------
    confidence_level, significance : float
        Promised coverage, and the probability of any false finding that was allowed.
    n_samples, n_discovery, n_verification : int
        Audited rows, and how many of them proposed and verified groups.
    classes : tuple
        The labels.
    sensitive_features : tuple of str
        The columns in which groups were looked for.
    coverage, low, high, mean_size : float
        Overall coverage, its 95% Clopper-Pearson interval and the mean size of the sets.
    set_sizes : DataFrame
        Columns size, n, share, coverage.
    groups : tuple of VerifiedGroup
        Every group that was put to the test, most significant first.
    levels, pairs : DataFrame
        Every level and every two levels that occur: group, n, share, coverage, low, high,
        mean_size, p_value. Worst first; each interval and p-value counts its row alone.
    slabs : DataFrame
        Columns measure (WSC, WSC+), delta, value, held_out, held_out_mass, null_low, null_median,
        null_high, p_value.
    excess_risk : float
        How far coverage can be told from the sensitive features (ERT, L1); NaN for one row.
    detectable_coverage : float or None
        A group with 30% of the rows is found with 80% power if its coverage is this low.
    picture : dict or None
        Coverage over the levels of the features that the main group's rule names.
    notes : tuple of str
        What a reader should know about the data.

    Examples
    --------
    >>> from fareg import audit
    >>> result = audit([[0.0]], ["a"], [["a", "b"]])
    >>> print(result)
    Too few rows to tell: 1 row cannot show which groups are covered less often than 90%.
      overall    100.0% covered (95% interval 2.5% to 100.0%), 2.00 labels per set, 1 row
    """

    confidence_level: float
    significance: float
    n_samples: int
    n_discovery: int
    n_verification: int
    classes: tuple[Any, ...]
    sensitive_features: tuple[str, ...]
    coverage: float
    low: float
    high: float
    mean_size: float
    set_sizes: pd.DataFrame
    groups: tuple[VerifiedGroup, ...]
    levels: pd.DataFrame
    pairs: pd.DataFrame
    slabs: pd.DataFrame
    excess_risk: float
    detectable_coverage: float | None
    picture: dict[str, Any] | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def findings(self) -> tuple[VerifiedGroup, ...]:
        """The groups whose coverage was verified to be below the level."""
        return tuple(group for group in self.groups if group.is_finding)

    @property
    def status(self) -> str:
        """One of "low" (all rows together are below the level), "finding", "pass", "unclear"."""
        if self.high < self.confidence_level:
            return "low"
        if self.findings:
            return "finding"
        return "pass" if self.detectable_coverage is not None else "unclear"

    @property
    def verdict(self) -> str:
        """The headline, in one sentence."""
        target = _percent(self.confidence_level, digits=0)
        main = self._main_group()
        if self.status == "finding":
            group = self.findings[0]
            return (
                f"rows with {group.rule} are covered {_percent(group.coverage)} of the time "
                f"instead of {target}, verified on {_rows(group.n)} that played no part in finding "
                "them."
            )
        if self.status == "low":
            worst = (
                f"worst: {main.rule}, {_percent(main.coverage)} of {_rows(main.n)}" if main else ""
            )
            return (
                f"sets cover {_percent(self.coverage)} of everyone instead of {target}; "
                f"{worst or 'no single group stands out'}."
            )
        if self.status == "pass":
            return (
                f"{_percent(self.coverage)} of all rows are covered (target {target}), and no "
                "group was verified to be covered less often."
            )
        return (
            f"{_rows(self.n_samples)} cannot show which groups are covered less often than "
            f"{target}."
        )

    def _main_group(self) -> VerifiedGroup | None:
        return main_group(self.groups, self.coverage, self.high, self.confidence_level)

    def summary(self) -> str:
        """Return the verdict and the key numbers as a few lines of text."""
        lines = [
            f"{STATUS[self.status]}: {self.verdict}",
            f"  overall    {_percent(self.coverage)} covered (95% interval {_percent(self.low)} to "
            f"{_percent(self.high)}), {self.mean_size:.2f} labels per set, "
            f"{_rows(self.n_samples)}",
        ]
        for group in self.findings:
            lines.append(
                f"  finding    {group.rule}: {_percent(group.coverage)} ({_percent(group.low)} to "
                f"{_percent(group.high)}) of {_rows(group.n)}, adjusted p "
                f"{_equals(group.adjusted_p_value)}"
            )
        if not self.findings and self.detectable_coverage is not None:
            lines.append(
                "  power      a group with 30% of the rows would be found with 80% power at "
                f"{_percent(self.detectable_coverage)} coverage"
            )
        return "\n".join(lines + [f"  note       {note}" for note in self.notes])

    __str__ = summary

    def __repr__(self) -> str:
        return (
            f"AuditResult(status={self.status!r}, n_samples={self.n_samples}, "
            f"coverage={self.coverage:.4f}, findings={[group.rule for group in self.findings]})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything the report shows, in plain JSON types; NaN becomes None."""
        main = self._main_group()
        summary: dict[str, Any] = {
            "title": "Coverage audit",
            "fareg_version": version("fareg"),
            "verdict": {
                "status": self.status,
                "label": STATUS[self.status],
                "sentence": self.verdict[0].upper() + self.verdict[1:],
            },
            "data": {
                "n_samples": self.n_samples,
                "n_discovery": self.n_discovery,
                "n_verification": self.n_verification,
                "n_classes": len(self.classes),
                "classes": list(self.classes[:MAX_SHOWN]),
                "sensitive_features": list(self.sensitive_features),
                "confidence_level": self.confidence_level,
                "significance": self.significance,
            },
            "overall": {
                "n": self.n_samples,
                "coverage": self.coverage,
                "low": self.low,
                "high": self.high,
                "mean_size": self.mean_size,
            },
            "set_sizes": self.set_sizes.to_dict("records"),
            "groups": [_group_dict(group) for group in self.groups],
            "main_group": self.groups.index(main) if main else None,
            "picture": self.picture,
            "levels": _table_dict(self.levels),
            "pairs": _table_dict(self.pairs),
            "slabs": self.slabs.to_dict("records"),
            "excess_risk": self.excess_risk,
            "detectable_coverage": self.detectable_coverage,
            "notes": list(self.notes),
        }
        plain: dict[str, Any] = _plain(summary)
        return plain

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write :meth:`to_dict` to a file, at once or not at all."""
        text = json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)
        _write(path, text + "\n")

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write the report, one HTML file that needs nothing else, at once or not at all."""
        # here, so that importing fareg does not load the template engine
        from fareg.report import render_report

        _write(path, render_report(self.to_dict()))


def main_group(
    groups: tuple[VerifiedGroup, ...], coverage: float, high: float, confidence_level: float
) -> VerifiedGroup | None:
    """Return the group that a report describes, if any.

    The most significant finding, or else a learned group below the level. If all rows together are
    below it (``high``), every group may be: then the worst finding that lies below ``coverage``.
    """
    findings = [group for group in groups if group.is_finding]
    if high < confidence_level:
        apart = [group for group in findings if group.high < coverage]
        return min(apart, key=lambda group: group.high, default=None)
    below = (g for g in groups if g.source == "learned" and g.coverage < confidence_level)
    return next(iter([*findings, *below]), None)


def _write(path: str | os.PathLike[str], text: str) -> None:
    with replacing(path) as draft:
        draft.write_text(text, encoding="utf-8")


def _percent(share: float, digits: int = 1) -> str:
    """Return a share in percent; a confidence level keeps the decimals that it has."""
    if digits == 0:
        return f"{100 * share:.10g}%"
    return f"{100 * share:.{digits}f}%"


def _equals(p: float) -> str:
    return f"= {p:.2g}" if p >= SMALLEST_P else f"< {SMALLEST_P:g}"


def _rows(n: int) -> str:
    return "1 row" if n == 1 else f"{n:,} rows"


def _group_dict(group: VerifiedGroup) -> dict[str, Any]:
    return {name: value for name, value in vars(group).items() if name != "mask"}


def _table_dict(table: pd.DataFrame) -> dict[str, Any]:
    n_small = int((table["n"] < FEW_ROWS).sum())
    rows = table.head(MAX_SHOWN).to_dict("records")
    return {"n_total": len(table), "n_small": n_small, "few_rows": FEW_ROWS, "rows": rows}


def _plain(value: Any) -> Any:
    """Turn numpy scalars, tuples and NaN into what JSON knows."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value if isinstance(value, str | int | bool | None) else str(value)
