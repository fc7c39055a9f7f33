"""The result of an audit, as numbers, words, JSON, tables, a model card and a report."""

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
from fareg.auditing._rate import Rate
from fareg.auditing._search import Finding
from fareg.auditing._tables import records
from fareg.auditing._verdict import Facts, Verdict, audit_verdict
from fareg.report import render_card, render_markdown, render_report, text_table, words

SCHEMA = 1  # of the JSON; it changes if a key disappears or changes its meaning
MAX_SHOWN = 200  # rows of a table in the JSON
FEW_ROWS = 10  # smaller categories and pairs are left out of the report's tables
FAILURES = {"found": ("finding", "low"), "low": ("low",), "unequal": ("unequal",)}
TABLES = ("table", "sizes", "levels", "pairs", "by_label", "set_sizes", "slabs")


@dataclass(frozen=True, eq=False, repr=False)
class AuditResult:
    """The outcome of :func:`fareg.audit`.

    Attributes
    ----------
    confidence_level, significance : float
        Promised coverage, and the allowed probability of any false finding.
    n_samples, n_splits : int
        Number of audited rows, and of the random halves that proposed and tested groups.
    classes : tuple
        The labels.
    sensitive_features : tuple of str
        The columns that were searched for groups.
    rate : Rate
        Overall coverage, with its 95% interval; also ``coverage``, ``low``, ``high``.
    mean_size : float
        Mean number of labels per set.
    groups : tuple of Finding
        Every group that was tested, findings first; each explains most of what earlier ones leave
        unexplained. ``findings`` are those that were verified.
    unequal : tuple of Finding
        Groups whose sets are verified to hold at least 1.25 times as many labels as the others.
    table : DataFrame
        The first table of the report: everyone, the categories of named sensitive features,
        findings and true labels, with group, kind, n, share, coverage and sizes with intervals, and
        few (whether there are too few rows to tell).
    sizes : DataFrame
        Coverage and sizes of everyone, findings, categories, pairs and labels with 20 rows or more:
        mean_size, singletons, empty, referred (sets that hold several labels or none),
        top_label_right.
    set_sizes : DataFrame
        Columns size, n, share, coverage.
    levels, pairs, by_label : DataFrame
        Every category and every pair of categories that occurs, strongest evidence first, and every
        true label, worst first. Each interval and p-value is valid for its row alone.
    slabs : DataFrame
        Columns measure (WSC, WSC+), delta, value, held_out, held_out_mass, held_out_low,
        held_out_high, null_low, null_median, null_high, p_value. Empty if they were not computed.
    excess_risk, excess_risk_under : float
        How well coverage can be predicted from the sensitive features (ERT, L1), and the part that
        comes from rows that are covered too rarely; NaN if they were not computed.
    power : tuple of dict
        What would have been found in four of five cases, by simulation on these rows: conditions of
        the group, its share of the rows, and the highest coverage at which it is found.
    picture : dict or None
        Coverage by category of the features in the main finding's rule.
    notes : tuple of str
        What a reader should know about the data.
    about : dict
        Where the numbers come from: the date, the seed, and what else is known, such as file,
        target, base_model and accuracy.
    least_coverage : float
        Overall coverage below which the sets break their promise: the confidence level, or less if
        the number of calibration rows was given.
    rest : Rate or None
        Coverage of everyone outside all findings, if there are findings.
    settings : dict
        Names for settings in the next steps, where they differ from Python; under ``protect``, the
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
    rest: Rate | None = None
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The groups whose coverage was verified to be below the promise."""
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
        """Number of clusters, None if rows are independent."""
        return self.rate.n_clusters

    @cached_property
    def facts(self) -> Facts:
        """The facts that decide the verdict."""
        return Facts(
            self.confidence_level,
            self.rate,
            self.least_coverage,
            self.findings,
            self.unequal,
            [(row["label"], Rate.of_row(row)) for row in records(self.by_label)],
            self.power,
            self.rest,
        )

    @cached_property
    def decided(self) -> Verdict:
        """The verdict with its status, label, sentences and next steps."""
        return audit_verdict(self.facts, self.settings, is_own="model" in self.about)

    @property
    def status(self) -> str:
        """One of "low" (overall coverage is below the promise), "finding", "label" (a true label is
        covered far too rarely), "unclear", "unequal" (sets are much larger for some), "pass"."""
        return self.decided.status

    @property
    def verdict(self) -> str:
        """The headline, in one or a few sentences."""
        return self.decided.sentence

    @property
    def opening(self) -> list[str]:
        """What was promised, on which condition, and what the model did not read."""
        target = words.confidence(self.confidence_level)
        promised = self.about.get("promise") or (
            f"These sets promise to hold the true label of {target} of people, taken all together; "
            "that says nothing about any single group."
        )
        condition = (
            "The results hold for people like those in these rows, if the rows neither trained nor "
            "calibrated the model."
        )
        unread = self.about.get("not_read")
        searched = f"The columns searched for groups are {words.shown(self.sensitive_features)}"
        read = f"{searched}; the model reads all of them."
        if unread is None:
            read = f"{searched}; it is not known whether the model reads them."
        elif unread:
            read = f"The model did not read {words.shown(unread)}. {searched}."
        return [promised, condition, read]

    @property
    def sizes(self) -> pd.DataFrame:
        """Coverage and sizes of all groups with enough rows, in one table."""
        first = self.table[self.table["kind"].isin(["everyone", "finding", "unequal"])]
        parts = [first, self.levels.assign(kind="level"), self.pairs.assign(kind="pair")]
        parts.append(self.by_label.rename(columns={"label": "group"}).assign(kind="label"))
        table = pd.concat(parts, ignore_index=True)
        columns = ["group", "kind", *self.levels.columns.drop(["group", "p_value"])]
        table = table.loc[table["n"] >= 2 * FEW_ROWS, columns]
        return table.drop_duplicates("group").reset_index(drop=True)

    def fails(self, gate: str) -> bool:
        """Return whether a gate is shut: "found", "low" or "unequal".

        "found" means that the verdict names an under-covered group, or that overall coverage is
        low; slight gaps and groups of few rows are reported, but leave the gate open.
        """
        return self.status in FAILURES[gate] or (gate == "unequal" and bool(self.unequal))

    def summary(self) -> str:
        """Return the verdict, the promise and the key numbers as a few lines of text."""
        lines = [f"{self.decided.label}: {self.verdict}", *self.opening]
        lines += [f"  next       {step}" for step in self.decided.next_steps]
        lines += text_table(self._first_table())
        for group in self.findings:
            lines.append(
                f"  finding    {group.rule}: {words.percent(group.rate.share)} covered "
                f"({words.evidence(group.to_dict())}), proposed by {group.n_found} of "
                f"{group.n_splits} halves"
            )
        lines += [f"  note       {note}" for note in self.notes]
        return "\n".join(map(words.printable, lines))

    __str__ = summary

    def __repr__(self) -> str:
        findings = [group.rule.text for group in self.findings]
        return (
            f"AuditResult(status={self.status!r}, n_samples={self.n_samples}, "
            f"coverage={self.coverage:.4f}, findings={findings})"
        )

    def _repr_html_(self) -> str:
        """Return what notebooks show: the verdict, the findings, the picture."""
        facts = [words.rows(self.n_samples), f"{words.percent(self.coverage)} covered"]
        facts += [f"{words.size(self.mean_size)} labels per set"]
        facts += [f"target {words.confidence(self.confidence_level)}"]
        return render_card(
            {
                "title": "Audit",
                "facts": ", ".join(facts),
                **self.decided.to_dict(),
                "head": ("Group", "Rows", "Rows tested", "Covered", "95% interval", "adjusted p"),
                "rows": [
                    [
                        str(group.rule),
                        *(words.count(n) for n in (int(group.mask.sum()), group.rate.n)),
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

    def _first_table(self) -> list[dict[str, Any]]:
        """Return the first table; ``n_rows`` of a finding counts all its rows, ``n`` the tested."""
        n_rows = {group.rule.text: int(group.mask.sum()) for group in self.findings}
        rows = records(self.table)
        for row in rows:
            if row["kind"] == "finding":
                row["n_rows"] = n_rows.get(row["group"], row["n"])
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Return everything the report shows, in plain JSON types; NaN becomes None."""
        main = self.facts.main
        overall = {"n_clusters": None, **self.rate.to_dict(), "mean_size": self.mean_size}
        data = ("n_samples", "n_splits", "sensitive_features", "confidence_level", "significance")
        same = ("opening", "about", "picture", "excess_risk", "excess_risk_under", "power", "notes")
        summary = {
            "schema": SCHEMA,
            "title": "Coverage audit",
            "fareg_version": version("fareg"),
            "verdict": self.decided.to_dict(),
            "data": {
                **{name: getattr(self, name) for name in data},
                "n_classes": len(self.classes),
                "classes": self.classes[:MAX_SHOWN],
            },
            "overall": {**overall, "least_coverage": self.least_coverage},
            **{name: getattr(self, name) for name in same},
            "table": self._first_table(),
            "set_sizes": records(self.set_sizes),
            "groups": [group.to_dict() for group in self.groups],
            "unequal": [group.to_dict() for group in self.unequal],
            "main_group": None if main is None else self.groups.index(main),
            **{name: _table_part(getattr(self, name)) for name in ("levels", "pairs", "by_label")},
            "sizes": records(self.sizes.head(MAX_SHOWN)),
            "slabs": records(self.slabs),
        }
        return json_types(summary)

    def to_json(self, path: AnyPath | None = None) -> str:
        """Return :meth:`to_dict` as text, and write it to a .json file if one is named."""
        text = json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)
        return save_text(path, text + "\n", JSON)

    def to_html(self, path: AnyPath) -> None:
        """Write the report, one HTML file that needs nothing else, at once or not at all."""
        check_output(path, endings=HTML)
        write_text(path, render_report(self.to_dict()))

    def to_markdown(self, path: AnyPath | None = None) -> str:
        """Return the verdict and the first table as Markdown; write them to ``path`` if given."""
        return save_text(path, render_markdown(self.to_dict()))

    def to_card(self, path: AnyPath | None = None) -> str:
        """Return a section of a model card, Markdown after YAML as Hugging Face reads it."""
        return save_text(path, render_markdown(self.to_dict(), as_card=True))

    def to_tables(self, folder: AnyPath) -> None:
        """Write every table as a CSV file into a folder, which is created if needed."""
        write_tables(folder, {name: getattr(self, name) for name in TABLES})


def write_tables(folder: AnyPath, tables: Mapping[str, pd.DataFrame]) -> None:
    """Write frames as CSV files named after them, each whole or not at all."""
    if Path(folder).exists() and not Path(folder).is_dir():
        raise InvalidInputError(f"tables must name a folder, got the file {folder}; name another")
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        write_text(Path(folder) / f"{name}.csv", table.to_csv(index=False, lineterminator="\n"))


def save_text(path: AnyPath | None, text: str, endings: tuple[str, ...] = MARKDOWN) -> str:
    """Return a text, after writing it to a file if one is named."""
    if path is not None:
        check_output(path, endings=endings)
        write_text(path, text)
    return text


def _table_part(table: pd.DataFrame) -> dict[str, Any]:
    n_small = int((table["n"] < FEW_ROWS).sum())
    rows = records(table.head(MAX_SHOWN))
    return {"n_total": len(table), "n_small": n_small, "few_rows": FEW_ROWS, "rows": rows}
