"""What an audit found, as numbers, words, JSON and a report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from typing import Any

import pandas as pd

from fareg._files import AnyPath, check_output, write_text
from fareg._validation import BoolArray
from fareg._words import HTML, JSON, json_types
from fareg.auditing._rate import Promise
from fareg.auditing._search import Finding
from fareg.report import (
    audit_verdict,
    headline_group,
    renamed,
    render_card,
    render_report,
    words,
    worst_label,
)

MAX_SHOWN = 200  # rows of a table in the summary, worst first
FEW_ROWS = 10  # smaller levels and pairs are left out of the report's tables


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
    groups : tuple of Finding
        Every group that was put to the test, most significant first.
    levels, pairs : DataFrame
        Every level and every two levels that occur: group, n, share, coverage, low, high,
        mean_size, p_value. Worst first; each interval and p-value counts its row alone.
    by_label : DataFrame
        Every true label: label, n, share, coverage, low, high, mean_size, p_value, worst first.
    slabs : DataFrame
        Columns measure (WSC, WSC+), delta, value, held_out, held_out_mass, held_out_low,
        held_out_high, null_low, null_median, null_high, p_value; the search is
        optimised. Empty if they were not computed.
    excess_risk : float
        How far coverage can be told from the sensitive features (ERT, L1); NaN for one row, or
        if it was not computed.
    excess_risk_under : float
        The part of it that comes from people who are covered too rarely.
    detectable_coverage : float or None
        A group with 30% of the rows is found with 80% power if its coverage is this low.
    picture : dict or None
        Coverage over the levels of the features that the main group's rule names.
    about : dict
        Where the numbers come from: the date, the seed, and what else is known, such as file,
        target, base_model and accuracy.
    least_coverage : float
        Overall coverage below which the sets break their promise: the confidence level, unless the
        audit was told the number of calibration rows.
    n_clusters : int or None
        How many clusters the rows belong to, if the audit was told. Each counts once in all shares
        and coverages, and the tables by level, pair and label have a column n_clusters.
    verifying : bool ndarray of shape (n_samples,)
        The rows that verified groups, and so did not propose them.
    settings : dict
        What next steps call a setting, where not by its name in Python.
    notes : tuple of str
        What a reader should know about the data.

    Examples
    --------
    >>> from fareg import audit
    >>> result = audit([[0.0]], ["a"], [["a", "b"]])
    >>> print(result)
    Too few rows to tell whether a group is left out: 1 row cannot show which groups are covered \
less often than 90%.
      next       Collect more rows: a group needs at least 100 rows in the half of the rows that \
verifies.
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
    groups: tuple[Finding, ...]
    levels: pd.DataFrame
    pairs: pd.DataFrame
    by_label: pd.DataFrame
    slabs: pd.DataFrame
    excess_risk: float
    detectable_coverage: float | None
    picture: dict[str, Any] | None
    notes: tuple[str, ...]
    about: dict[str, Any]
    least_coverage: float
    excess_risk_under: float
    n_clusters: int | None
    verifying: BoolArray
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The groups whose coverage was verified to be below the level."""
        return tuple(group for group in self.groups if group.is_finding)

    @property
    def status(self) -> str:
        """One of "low" (all rows together are below the level), "finding", "label" (the rows of a
        true label are far below), "pass", "unclear"."""
        return str(self.decided["status"])

    @property
    def verdict(self) -> str:
        """The headline, in one or a few sentences."""
        return str(self.decided["sentence"])

    @cached_property
    def decided(self) -> dict[str, Any]:
        """The status, label, sentence and next_steps of the verdict."""
        decided = audit_verdict(
            confidence_level=self.confidence_level,
            overall=self._overall(),
            groups=[_group_dict(group) for group in self.groups],
            by_label=records(self.by_label),
            detectable_coverage=self.detectable_coverage,
        )
        return renamed(decided, self.settings)

    def _overall(self) -> dict[str, Any]:
        told = self.least_coverage < self.confidence_level  # how many rows calibrated the sets
        return {
            "n": self.n_samples,
            "coverage": self.coverage,
            "n_clusters": self.n_clusters,
            "low": self.low,
            "high": self.high,
            "mean_size": self.mean_size,
            "least_coverage": self.least_coverage,
            "rows_that_excuse": None
            if told
            else Promise(self.confidence_level).rows_that_excuse(self.high),
        }

    def summary(self) -> str:
        """Return the verdict and the key numbers as a few lines of text."""
        lines = [
            f"{self.decided['label']}: {self.verdict}",
            *(f"  next       {step}" for step in self.decided["next_steps"]),
            f"  overall    {words.percent(self.coverage)} covered "
            f"({words.evidence(self._overall())}), {words.size(self.mean_size)} labels per set, "
            f"{words.rows(self.n_samples)}",
        ]
        for group in self.findings:
            lines.append(
                f"  finding    {group.rule}: {words.percent(group.coverage)} of "
                f"{words.rows(group.n)} ({words.evidence(vars(group))})"
            )
        if len(self.by_label) > 1:
            worst = worst_label(records(self.by_label)) or {}
            lines.append(
                f"  by label   worst is {worst['label']}: {words.percent(worst['coverage'])} of "
                f"{words.rows(worst['n'])} ({words.evidence(worst)})"
            )
        lines += [f"  note       {note}" for note in self.notes]
        return "\n".join(map(words.printable, lines))

    __str__ = summary

    def __repr__(self) -> str:
        return (
            f"AuditResult(status={self.status!r}, n_samples={self.n_samples}, "
            f"coverage={self.coverage:.4f}, findings={[group.rule for group in self.findings]})"
        )

    def _repr_html_(self) -> str:
        """Return what notebooks show: the verdict, the findings, the picture."""
        return render_card(
            {
                "title": "Audit",
                "facts": f"{words.rows(self.n_samples)}, "
                f"{words.percent(self.coverage)} covered, {words.size(self.mean_size)} labels "
                f"per set, target {words.confidence(self.confidence_level)}",
                **self.decided,
                "head": ("Under-covered group", "Rows", "Covered", "95% interval", "adjusted p"),
                "rows": [
                    [
                        group.rule,
                        words.count(group.n),
                        words.percent(group.coverage),
                        words.interval(group.low, group.high),
                        words.probability(group.adjusted_p_value),
                    ]
                    for group in self.findings
                ],
                "note": "; ".join(self.notes),
                "picture": json_types(self.picture),
                "caption": "Coverage of the group, all audited rows",
                "confidence_level": self.confidence_level,
            }
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything the report shows, in plain JSON types; NaN becomes None."""
        groups = [_group_dict(group) for group in self.groups]
        main = headline_group(groups, self._overall(), self.confidence_level)
        summary = {
            "title": "Coverage audit",
            "promise": "Sets that keep their promise hold the true label of "
            f"{words.confidence(self.confidence_level)} of all rows or more. This audit tests "
            "that, for everyone and for groups, on rows that played no part in making the sets.",
            "fareg_version": version("fareg"),
            "about": self.about,
            "verdict": self.decided,
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
            "overall": self._overall(),
            "set_sizes": self.set_sizes.to_dict("records"),
            "groups": groups,
            "main_group": groups.index(main) if main else None,
            "picture": self.picture,
            "levels": _table_dict(self.levels),
            "pairs": _table_dict(self.pairs),
            "by_label": _table_dict(self.by_label),
            "slabs": self.slabs.to_dict("records"),
            "excess_risk": self.excess_risk,
            "excess_risk_under": self.excess_risk_under,
            "detectable_coverage": self.detectable_coverage,
            "notes": list(self.notes),
        }
        return json_types(summary)

    def to_json(self, path: AnyPath) -> None:
        """Write :meth:`to_dict` to a .json file, at once or not at all."""
        check_output(path, endings=JSON)
        text = json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)
        write_text(path, text + "\n")

    def to_html(self, path: AnyPath) -> None:
        """Write the report, one HTML file that needs nothing else, at once or not at all."""
        check_output(path, endings=HTML)
        write_text(path, render_report(self.to_dict()))


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table in plain JSON types; NaN becomes None."""
    return json_types(table.to_dict("records"))


def _group_dict(group: Finding) -> dict[str, Any]:
    return {name: value for name, value in vars(group).items() if name not in ("mask", "group")}


def _table_dict(table: pd.DataFrame) -> dict[str, Any]:
    n_small = int((table["n"] < FEW_ROWS).sum())
    rows = table.head(MAX_SHOWN).to_dict("records")
    return {"n_total": len(table), "n_small": n_small, "few_rows": FEW_ROWS, "rows": rows}
