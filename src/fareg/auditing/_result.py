"""What an audit found, as numbers, words, JSON, tables, a model card and a report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd

from fareg._files import AnyPath, check_output, write_text
from fareg._validation import InvalidInputError
from fareg._words import HTML, JSON, MARKDOWN, json_types
from fareg.auditing._card import markdown, model_card, text_table
from fareg.auditing._rate import Rate
from fareg.auditing._search import Finding
from fareg.auditing._verdict import Facts, audit_verdict, protect_command
from fareg.report import render_card, render_report, words

SCHEMA = 1  # of the JSON; a new number if a key goes or means something else
MAX_SHOWN = 200  # rows of a table in the summary, worst first
FEW_ROWS = 10  # smaller levels and pairs are left out of the report's tables
FAILURES = {"found": ("finding", "low"), "low": ("low",), "unequal": ("unequal",)}


@dataclass(frozen=True, eq=False, repr=False)
class AuditResult:
    """The outcome of :func:`fareg.audit`.

    Attributes
    ----------
    confidence_level, significance : float
        Promised coverage, and the probability of any false finding that was allowed.
    n_samples, n_splits : int
        Audited rows, and how many random halves proposed and tested groups.
    classes : tuple
        The labels.
    sensitive_features : tuple of str
        The columns in which groups were looked for.
    rate : Rate
        Overall coverage, with its 95% interval; also ``coverage``, ``low``, ``high``.
    mean_size : float
        Mean number of labels per set.
    groups : tuple of Finding
        Every group that was put to the test, findings first, in the order in which they explain
        most of what the ones before leave open; ``findings`` are those that were verified.
    unequal : tuple of Finding
        Groups whose sets are verified to hold at least 1.25 times the labels of the others'.
    table : DataFrame
        What people ask for first: everyone, the levels of the sensitive features that were named,
        findings and true labels: group, kind, n, share, coverage and sizes with intervals, few
        (whether there are too few rows to tell).
    sizes : DataFrame
        Coverage and sizes of everyone, findings, levels, pairs and labels with 20 rows or more:
        mean_size, singletons, empty, referred (sets that hold several labels or none),
        top_label_right.
    set_sizes : DataFrame
        Columns size, n, share, coverage.
    levels, pairs, by_label : DataFrame
        Every level, every two levels that occur, and every true label; worst first. Each interval
        and p-value counts its row alone.
    slabs : DataFrame
        Columns measure (WSC, WSC+), delta, value, held_out, held_out_mass, held_out_low,
        held_out_high, null_low, null_median, null_high, p_value. Empty if they were not computed.
    excess_risk, excess_risk_under : float
        How far coverage can be told from the sensitive features (ERT, L1), and the part of it that
        comes from people who are covered too rarely; NaN if they were not computed.
    power : tuple of dict
        What would have been found in four of five cases, by simulation on these rows: conditions of
        the group, its share of the rows, and the coverage at which or below which it is found.
    picture : dict or None
        Coverage over the levels of the features that the main finding's rule names.
    notes : tuple of str
        What a reader should know about the data.
    about : dict
        Where the numbers come from: the date, the seed, and what else is known, such as file,
        target, base_model and accuracy.
    least_coverage : float
        Overall coverage below which the sets break their promise: the confidence level, unless the
        audit was told the number of calibration rows.
    settings : dict
        What next steps call a setting, where not by its name in Python; under ``protect``, the
        command that ends with the words of a group.

    Examples
    --------
    >>> from fareg import audit
    >>> result = audit([[0.0]], ["a"], [["a", "b"]])
    >>> result.status, result.coverage, result.mean_size
    ('unclear', 1.0, 2.0)
    """

    confidence_level: float
    significance: float
    n_samples: int
    n_splits: int
    classes: tuple[Any, ...]
    sensitive_features: tuple[str, ...]
    rate: Rate
    mean_size: float
    groups: tuple[Finding, ...]
    unequal: tuple[Finding, ...]
    table: pd.DataFrame
    set_sizes: pd.DataFrame
    levels: pd.DataFrame
    pairs: pd.DataFrame
    by_label: pd.DataFrame
    slabs: pd.DataFrame
    excess_risk: float
    excess_risk_under: float
    power: tuple[dict[str, Any], ...]
    picture: dict[str, Any] | None
    notes: tuple[str, ...]
    about: dict[str, Any]
    least_coverage: float
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The groups whose coverage was verified to be below the level."""
        return tuple(group for group in self.groups if group.is_finding)

    @property
    def coverage(self) -> float:
        """Overall coverage."""
        return self.rate.share

    @property
    def low(self) -> float:
        """Lower end of the 95% interval of coverage."""
        return self.rate.low

    @property
    def high(self) -> float:
        """Upper end of it."""
        return self.rate.high

    @property
    def n_clusters(self) -> int | None:
        """How many clusters the rows belong to, if the audit was told; each counts once."""
        return self.rate.n_clusters

    @property
    def status(self) -> str:
        """One of "low" (all rows together are below the level), "finding", "label" (the rows of a
        true label are far below), "unclear", "unequal" (sets are much larger for some), "pass"."""
        return str(self.decided["status"])

    @property
    def verdict(self) -> str:
        """The headline, in one or a few sentences."""
        return str(self.decided["sentence"])

    @cached_property
    def _facts(self) -> Facts:
        return Facts(
            self.confidence_level,
            self._overall(),
            [own.to_dict() for own in self.findings],
            [own.to_dict() for own in self.unequal],
            records(self.by_label),
            self.power,
        )

    @property
    def main(self) -> Finding | None:
        """The finding that the report describes, if there is one far enough below."""
        main = self._facts.main
        return next((own for own in self.findings if main and own.rule.text == main["rule"]), None)

    @cached_property
    def decided(self) -> dict[str, Any]:
        """The status, label, sentence and next_steps of the verdict."""
        facts, main = self._facts, self._facts.main
        fix = protect_command(main["rule"], self.settings.get("protect", "")) if main else ""
        return renamed(audit_verdict(facts, fix), self.settings)

    @property
    def opening(self) -> list[str]:
        """What was promised, to whom, on which condition, and what the model did not read."""
        target = words.confidence(self.confidence_level)
        promised = self.about.get("promise") or (
            f"These sets promise to hold the true label of {target} of people, taken all together; "
            "that alone promises nothing to any group by itself."
        )
        condition = (
            "This audit holds for people like those in its rows, if these were not used to train "
            "or calibrate the model."
        )
        unread = self.about.get("not_read")
        searched = f"groups were looked for in {words.shown(self.sensitive_features)}"
        if unread is None:
            read = f"G{searched[1:]}; whether the model reads these is not known."
        elif unread:
            read = f"The model did not read {words.shown(unread)}; {searched}."
        else:
            read = f"The model reads all these columns: {searched}."
        return [promised, condition, read]

    def _overall(self) -> dict[str, Any]:
        told = {**self.rate.told(), "mean_size": self.mean_size}
        return {**told, "n_clusters": self.n_clusters, "least_coverage": self.least_coverage}

    @property
    def sizes(self) -> pd.DataFrame:
        """Coverage and sizes of all groups with enough rows, in one table."""
        first = self.table[self.table["kind"].isin(["everyone", "finding", "unequal"])]
        parts = [first, self.levels.assign(kind="level"), self.pairs.assign(kind="pair")]
        parts.append(self.by_label.rename(columns={"label": "group"}).assign(kind="label"))
        table = pd.concat(parts, ignore_index=True)
        kept = ["group", "kind", *self.levels.columns.drop("group")]
        table = table.loc[table["n"] >= 2 * FEW_ROWS, kept]
        return table.drop(columns="p_value").drop_duplicates("group").reset_index(drop=True)

    def fails(self, gate: str) -> bool:
        """Tell whether a gate is shut: "found", "low" or "unequal".

        "found" means that the verdict names an under-covered group, or that everyone is below:
        slight gaps and groups of few rows are told, and leave the gate open.
        """
        return self.status in FAILURES[gate] or (gate == "unequal" and bool(self.unequal))

    def summary(self) -> str:
        """Return what was promised, the verdict and the key numbers as a few lines of text."""
        lines = [f"{self.decided['label']}: {self.verdict}", *self.opening]
        lines += [f"  next       {step}" for step in self.decided["next_steps"]]
        lines.append(
            f"  overall    {words.percent(self.coverage)} covered "
            f"({words.evidence(self._overall())}), {words.size(self.mean_size)} labels per set, "
            f"{words.rows(self.n_samples)}"
        )
        lines += text_table(records(self.table))
        for group in self.findings:
            lines.append(
                f"  finding    {group.rule}: {words.percent(group.rate.share)} of about "
                f"{words.rows(group.rate.n)} ({words.evidence(group.to_dict())}), in "
                f"{group.n_found} of {group.n_splits} halves"
            )
        for group in self.unequal:
            lines.append(
                f"  unequal    {group.rule}: {words.size(group.mean_size)} labels per set, others "
                f"{words.size(group.others_size)}"
            )
        lines += [f"  note       {note}" for note in self.notes]
        return "\n".join(map(words.printable, lines))

    __str__ = summary

    def __repr__(self) -> str:
        return (
            f"AuditResult(status={self.status!r}, n_samples={self.n_samples}, "
            f"coverage={self.coverage:.4f}, findings={[str(own.rule) for own in self.findings]})"
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
                        str(group.rule),
                        words.count(group.rate.n),
                        words.percent(group.rate.share),
                        words.interval(group.rate.low, group.rate.high),
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
        main = self.main
        summary = {
            "schema": SCHEMA,
            "title": "Coverage audit",
            "opening": self.opening,
            "fareg_version": version("fareg"),
            "about": self.about,
            "verdict": self.decided,
            "data": {
                "n_samples": self.n_samples,
                "n_splits": self.n_splits,
                "n_classes": len(self.classes),
                "classes": list(self.classes[:MAX_SHOWN]),
                "sensitive_features": list(self.sensitive_features),
                "confidence_level": self.confidence_level,
                "significance": self.significance,
            },
            "overall": self._overall(),
            "table": records(self.table.drop(columns=["hits", "effective"], errors="ignore")),
            "set_sizes": self.set_sizes.to_dict("records"),
            "groups": [group.to_dict() for group in self.groups],
            "unequal": [group.to_dict() for group in self.unequal],
            "main_group": None if main is None else self.groups.index(main),
            "picture": self.picture,
            "levels": _table_dict(self.levels),
            "pairs": _table_dict(self.pairs),
            "by_label": _table_dict(self.by_label),
            "sizes": records(self.sizes.head(MAX_SHOWN)),
            "slabs": self.slabs.to_dict("records"),
            "excess_risk": self.excess_risk,
            "excess_risk_under": self.excess_risk_under,
            "power": list(self.power),
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

    def to_markdown(self, path: AnyPath | None = None) -> str:
        """Return the verdict and the first table as Markdown; write it to a .md file if asked."""
        return written(path, markdown(self.to_dict()))

    def to_card(self, path: AnyPath | None = None) -> str:
        """Return a section of a model card: Markdown after YAML, as Hugging Face reads it."""
        return written(path, model_card(self.to_dict()))

    def to_tables(self, folder: AnyPath) -> None:
        """Write every table as a CSV file into a folder, which is made if it is not there."""
        write_tables(folder, {name: getattr(self, name) for name in TABLES})


TABLES = ("table", "sizes", "levels", "pairs", "by_label", "set_sizes", "slabs")


def write_tables(folder: AnyPath, tables: Mapping[str, pd.DataFrame]) -> None:
    """Write frames as CSV files named after them, each whole or not at all."""
    if Path(folder).exists() and not Path(folder).is_dir():
        raise InvalidInputError(f"tables must name a folder, got the file {folder}; name another")
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        kept = table.drop(columns=["hits", "effective", "features"], errors="ignore")
        write_text(Path(folder) / f"{name}.csv", kept.to_csv(index=False, lineterminator="\n"))


def written(path: AnyPath | None, text: str) -> str:
    """Return Markdown, and write it to a .md file if one is named."""
    if path is not None:
        check_output(path, endings=MARKDOWN)
        write_text(path, text)
    return text


def renamed(verdict: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return a verdict whose next steps name settings as ``names`` has them.

    >>> verdict = {"next_steps": ["Fit again with allow_empty=False."]}
    >>> renamed(verdict, {"allow_empty=False": "no empty sets"})["next_steps"]
    ['Fit again with no empty sets.']
    """
    steps = list(verdict["next_steps"])
    for python, other in names.items():
        if python != "protect":
            steps = [step.replace(python, other) for step in steps]
    return {**verdict, "next_steps": steps}


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table in plain JSON types; NaN becomes None."""
    return json_types(table.to_dict("records"))


def _table_dict(table: pd.DataFrame) -> dict[str, Any]:
    n_small = int((table["n"] < FEW_ROWS).sum())
    rows = table.head(MAX_SHOWN).to_dict("records")
    return {"n_total": len(table), "n_small": n_small, "few_rows": FEW_ROWS, "rows": rows}
