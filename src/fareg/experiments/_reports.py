"""What a target leaves, a summary and figures, and the page, which is written from the summaries.

What is said around the tables stands in ``reproduction.md.jinja``; what people conclude stands in
``notes.toml`` next to the summaries, and takes every number from them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from fareg.datasets import PAPER_STATES
from fareg.experiments._figures import draw_cdf, draw_image, draw_moves, draw_panels
from fareg.experiments._settings import BaseModel
from fareg.experiments._store import write_file
from fareg.experiments._summaries import (
    DECIDING,
    LABELS,
    PANELS,
    as_csv,
    digits_of,
    in_digits,
    markdown_table,
    readable,
    summarise,
    with_error,
    with_errors,
    with_paper,
)
from fareg.experiments._targets import TARGETS, Target
from fareg.paper import PublishedFaReGClassifier

SELECTIONS = {"first": "Color", "second": "Gender", "both": "Both"}
SLAB_NAMES = {"linear": "WSC", "quadratic": "WSC+"}
FEATURES: dict[Any, str] = {10: "all ten", 3: "the first three", 2: "the first two"}
OTHER_SETTINGS = "FaReG (paper, synthetic settings)"
OF_VARIANTS = ("Marginal", "AFCP2", "FaReG (paper)", OTHER_SETTINGS, "FaReG (levels)")
VARIANTS = ("base", "codes", "data")
UNPRINTED = ("group_coverage", "size", "gain")  # of what the paper does not print
# on the page; summaries have all
SHOWN_METHODS = ("Marginal", "CondCP", "FaReG (paper)", "FaReG (levels)", "Oracle partition")
TITLES = {"data": "Data", "codes": "Codes", "base": "Base", "n": "N", "method": "Method"}
TITLES |= {"setting": "Value"}
SHOWN = ("delta", "beta", "n_draws", "epochs", "batch_size", "learning_rate", "hidden_sizes")
X_LABELS = {"n": "N", "setting": "value"}
MATCHED = "Marginal at the size of "
NOTES = "notes.toml"

Parts = list[str]
Figures = dict[str, Any]


@dataclass(frozen=True)
class Report:
    """How a kind of target is summarised, shown and drawn."""

    summary: Callable[[pd.DataFrame], pd.DataFrame]
    parts: Callable[[pd.DataFrame], Parts]
    figures: Callable[[pd.DataFrame, pd.DataFrame], Figures]


def write_target(target: Target, rows: pd.DataFrame, folder: Path) -> list[Path]:
    """Write the summary and the figures of a target and return their paths."""
    if "fit_seconds" in rows:
        rows = rows.assign(seconds=rows["fit_seconds"] + rows["predict_seconds"])
    report = REPORTS[target.report]
    summary = report.summary(rows).assign(version=version("fareg"))
    place = folder / target.name
    figures = report.figures(summary, rows)
    drawn = [write_file(place / f"{k}.svg", draw_image(own, "svg")) for k, own in figures.items()]
    return [write_file(place / "summary.csv", as_csv(summary)), *drawn]


def write_page(page: Path) -> Path:
    """Write the page of the summaries in the folder of the same name next to it."""
    folder = page.with_suffix("")
    found = {name: folder / name / "summary.csv" for name in TARGETS}
    summaries = {
        name: with_paper(pd.read_csv(path, dtype={"version": str}), name)
        for name, path in found.items()
        if path.is_file()
    }
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # Markdown
    )
    numbers = {
        "mean": lambda *args, **where: _value(summaries, *args, **where)[0],
        "value": lambda *args, **where: with_error(*_value(summaries, *args, **where)),
    }
    notes = folder / NOTES
    said = tomllib.loads(notes.read_text(encoding="utf-8")) if notes.is_file() else {}
    said = {k: environment.from_string(v).render(numbers).strip() for k, v in said.items()}
    sections = [
        {
            "title": TARGETS[name].title,
            "note": said.get(name, ""),
            "parts": REPORTS[TARGETS[name].report].parts(summary),
            "figures": sorted(path.stem for path in (folder / name).glob("*.svg")),
            "name": name,
            "version": ", ".join(summary.get("version", pd.Series(["unknown"])).unique()),
        }
        for name, summary in summaries.items()
    ]
    text = environment.get_template("reproduction.md.jinja").render(
        folder=folder.name,
        sections=sections,
        settings=markdown_table(settings_table()),
        lead=said.get("lead", ""),
        versions=sorted({part["version"] for part in sections}),
        missing=[TARGETS[name].title for name in TARGETS if name not in summaries],
    )
    return write_file(page, text)


def _value(
    summaries: dict[str, pd.DataFrame], target: str, metric: str, **where: Any
) -> tuple[float, float, int]:
    """Return mean, standard error and digits of the one row of a summary that is meant."""
    own = summaries[target]
    for name, value in where.items():
        own = own[own[name] == value]
    ((_, row),) = own.iterrows()
    return row[metric], row.get(f"{metric}_se", np.nan), digits_of(metric)


def settings_table() -> pd.DataFrame:
    """Return the hyperparameters of FaReG (paper), and those of the base network."""
    said: dict[str, dict[str, Any]] = {}
    for data in ("synthetic", "nursery"):
        own = PublishedFaReGClassifier.published(data=data).get_params(deep=False)
        said[f"FaReG (paper), {data}"] = {name: own[name] for name in SHOWN}
    base = BaseModel()
    said["Base network"] = {
        item.name: getattr(base, item.name) for item in fields(base) if item.name != "kind"
    }
    pairs = [(name, ", ".join(f"{k} {v}" for k, v in own.items())) for name, own in said.items()]
    return pd.DataFrame(pairs, columns=["Model", "Hyperparameters"])


# --- kinds of targets ---------------------------------------------------------------------------


def _summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Summarise rows by all that labels them, with what a method gains on sets of equal size."""
    by = [name for name in LABELS if name in rows]
    if "method" in rows and rows["method"].str.startswith(MATCHED).any():
        keys = [*(name for name in by if name != "method"), "seed"]
        matched = rows[rows["method"].str.startswith(MATCHED)]
        matched = matched.assign(method=matched["method"].str.removeprefix(MATCHED))
        own = matched[[*keys, "method", "group_coverage"]].rename(columns={"group_coverage": "of"})
        rows = rows.merge(own, on=[*keys, "method"], how="left")
        rows = rows.assign(gain=rows["group_coverage"] - rows.pop("of"))
    return summarise(rows, by)


def _lead(summary: pd.DataFrame) -> str:
    few, many = summary["repeats"].min(), summary["repeats"].max()
    count = f"{many}" if few == many else f"{few} to {many}"
    text = f"{count} repetition{'s' if many > 1 else ''}."
    if "n" in summary and summary["n"].nunique() == 1:
        text = f"N = {summary['n'].iloc[0]}, {text}"
    if "states" in summary:
        ours = summary["states"].iloc[0]
        text += f" People of {ours}; the paper's: {', '.join(PAPER_STATES)}."
    return text


def _per_label(summary: pd.DataFrame) -> pd.Series:
    """Return the gain in group coverage per label that sets grow by, over marginal sets."""
    measures = summary[["group_coverage", "size"]]
    marginal = summary[summary["method"] == "Marginal"].set_index("n")[measures.columns]
    beyond = measures - marginal.loc[summary["n"]].to_numpy()
    return (beyond["group_coverage"] / beyond["size"]).where(beyond["size"] > 1e-3)


def _shown(summary: pd.DataFrame) -> pd.DataFrame:
    """Return the methods that the page shows: those that decide or that the paper prints."""
    printed = summary.filter(like="_paper").notna().any(axis=1)
    own = summary[summary["method"].isin(SHOWN_METHODS) | printed]
    return own if len(own) else summary


def _table(summary: pd.DataFrame, metrics: Sequence[str] = DECIDING) -> str:
    """Return a table of metrics; what is the same in all rows is left out, a method never is."""
    titles = {name: title for name, title in TITLES.items() if name in summary}
    labels = {k: v for k, v in titles.items() if k == "method" or summary[k].nunique() > 1}
    return markdown_table(readable(summary, labels, metrics))


def _size_parts(summary: pd.DataFrame) -> Parts:
    summary = summary.assign(per_label=_per_label(summary))
    shown = _shown(summary[summary["n"] == summary["n"].max()])
    return [_lead(shown), _table(shown, ("group_coverage", "size", "per_label"))]


def _comparison_parts(summary: pd.DataFrame) -> Parts:
    shown, is_printed = _shown(summary), "group_coverage_paper" in summary
    if any(name in summary and summary[name].nunique() > 1 for name in VARIANTS):
        shown = shown[shown["method"].isin(OF_VARIANTS if is_printed else OF_VARIANTS[2:3])]
    return [_lead(summary), _table(shown, DECIDING if is_printed else UNPRINTED)]


def _sweep_parts(summary: pd.DataFrame) -> Parts:
    lead = _lead(summary)
    if "size_paper" not in summary:  # the figure says it
        return [lead]
    return [lead, _table(_shown(summary), ("group_coverage", "size"))]


def _panels(x: str, panels: dict[str, str] = PANELS) -> Callable[..., Figures]:
    """Draw panels over N or over a setting."""

    def figures(summary: pd.DataFrame, rows: pd.DataFrame) -> Figures:
        log_x = bool(summary[x].max() > 1)
        return {"panels": draw_panels(summary, panels, x, x_label=X_LABELS[x], log_x=log_x)}

    return figures


def _no_figures(summary: pd.DataFrame, rows: pd.DataFrame) -> Figures:
    return {}


def _selection_figures(summary: pd.DataFrame, rows: pd.DataFrame) -> Figures:
    ratio = summary[summary["ratio_both"].notna()]
    names = {f"ratio_{w}{end}": f"selects_{w}{end}" for w in SELECTIONS for end in ("", "_se")}
    ratio = ratio.drop(columns=list(names.values())).rename(columns=names)
    drawn = pd.concat([summary, ratio.assign(method=ratio["method"] + ", by ratio")])
    drawn = drawn.assign(method=drawn["method"] + ", " + drawn["data"])
    panels = {f"selects_{which}": title for which, title in SELECTIONS.items()}
    return {"selection": draw_panels(drawn, panels, "n", x_label="N", log_x=True)}


def _slab_summary(rows: pd.DataFrame) -> pd.DataFrame:
    way = rows["search"].map({"random": "", "optimised": " optimised"})
    rows = rows.assign(method=rows["kind"].map(SLAB_NAMES) + way, setting=rows["delta"])
    return _summary(rows.drop(columns=["delta", "values"]))


def _slab_parts(summary: pd.DataFrame) -> Parts:
    is_shown = summary["method"].isin(SLAB_NAMES.values())
    few = summary[is_shown & (summary["features"] == summary["features"].min())]
    wide = few.assign(text=with_errors(few, "value")).pivot(
        index="method", columns="setting", values="text"
    )
    table = markdown_table(wide.add_prefix("delta = ").reset_index(names="Metric"))
    return [f"On {FEATURES[few['features'].iloc[0]]} features; {_lead(summary)}", table]


def _cdf_rows(rows: pd.DataFrame) -> pd.DataFrame:
    own = rows[(rows["delta"] == rows["delta"].max()) & (rows["search"] == "random")]
    return own.assign(method=own["kind"].map(SLAB_NAMES))


def _cdf_summary(rows: pd.DataFrame) -> pd.DataFrame:
    own = _cdf_rows(rows).explode("values").astype({"values": float})
    each = own.groupby(["features", "method"], sort=False)["values"]
    quantiles = each.describe(percentiles=[0.05, 0.25, 0.5, 0.75])
    return quantiles.drop(columns=["count", "std"]).reset_index()


def _cdf_parts(summary: pd.DataFrame) -> Parts:
    wide = summary.pivot(index="features", columns="method", values="mean").round(3)
    return ["Means over directions.", markdown_table(wide.reset_index(names="Features"))]


def _cdf_figures(summary: pd.DataFrame, rows: pd.DataFrame) -> Figures:
    curves: dict[str, dict[str, object]] = {}
    for _, row in _cdf_rows(rows).iterrows():
        panel = f"{FEATURES[row['features']]} features, delta = {row['delta']:g}"
        curves.setdefault(panel, {})[row["method"]] = row["values"]
    return {"cdf": draw_cdf(curves)}


def _picture_parts(summary: pd.DataFrame) -> Parts:
    inside = summary.groupby("step")["inside"]
    cells = [
        f"{low:.2f} to {high:.2f}" for low, high in zip(inside.min(), inside.max(), strict=True)
    ]
    wide = pd.DataFrame([cells], columns=[f"+{step}" for step in inside.groups])
    lead = (
        f"N = {summary['n'].iloc[0]}. Share of reconstructed rows in the true group, by the step "
        f"along the latent; lowest and highest of {summary['seed'].nunique()} seeds."
    )
    return [lead, markdown_table(wide)]


def _time_parts(summary: pd.DataFrame) -> Parts:
    lines = []
    for method, own in summary.groupby("method", sort=False):
        n, seconds = own["n"].to_numpy(float), own["seconds"].to_numpy(float)
        line = {"Method": method}
        line |= {f"N = {n[i]:.0f}": in_digits([seconds[i]], 2)[0] for i in (0, -1)}
        if len(n) > 2:
            slope, fixed = np.polyfit(n, seconds, 1)
            r2 = 1 - ((seconds - slope * n - fixed) ** 2).mean() / seconds.var()
            exponent = np.polyfit(np.log(n), np.log(seconds), 1)[0]
            names = ("Seconds per 1,000 rows", "R2 of the line", "Exponent")
            fit = in_digits((1000 * slope, r2, exponent))
            line |= dict(zip(names, fit, strict=True))
        lines.append(line)
    return [_lead(summary), markdown_table(pd.DataFrame(lines))]


REPORTS = {
    "sizes": Report(_summary, _size_parts, _panels("n")),
    "selection": Report(_summary, lambda summary: [_lead(summary)], _selection_figures),
    "comparison": Report(_summary, _comparison_parts, _no_figures),
    "sweep": Report(_summary, _sweep_parts, _panels("setting")),
    "slabs": Report(_slab_summary, _slab_parts, _no_figures),
    "cdf": Report(_cdf_summary, _cdf_parts, _cdf_figures),
    "pictures": Report(
        lambda rows: rows[["n", "seed", "step", "inside", "membership"]],
        _picture_parts,
        lambda summary, rows: {"reconstructions": draw_moves(rows)},
    ),
    "time": Report(_summary, _time_parts, _panels("n", {"seconds": "Time Cost (s)"})),
}
