"""The summary and figures of a target, and the page, which is written from the summaries.

The text around the tables is in ``reproduction.md.jinja``. People's conclusions are in
``notes.toml`` next to the summaries, and take every number from them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import FileSystemLoader, StrictUndefined
from jinja2.sandbox import SandboxedEnvironment

from fareg.datasets import PAPER_STATES
from fareg.experiments._bench import BaseModel, write_file
from fareg.experiments._figures import draw_cdf, draw_image, draw_moves, draw_panels
from fareg.experiments._targets import PAPER, TARGETS, Plan
from fareg.paper import PublishedFaReGClassifier

METRICS = {
    "group_coverage": "Group Coverage",
    "coverage": "Average Coverage",
    "wsc_plus": "WSC+",
    "size": "Average Size",
    "gain": "Gain at equal size",  # in group coverage, over the marginal set of the same mean size
    "per_label": "Gain per label",  # in group coverage, per label that sets grow by
}
PANELS = {name: METRICS[name] for name in ("group_coverage", "wsc_plus", "coverage", "size")}
DECIDING = ("group_coverage", "coverage", "wsc_plus", "size", "gain")  # columns of tables
UNPRINTED = ("group_coverage", "size", "gain")  # columns if the paper prints no numbers
DIGITS = {"size": 2, "per_label": 2, "seconds": 2}  # decimals; 3 for other metrics
LABELS = ("features", "data", "codes", "base", "states", "n", "method", "setting")
TITLES = {"data": "Data", "codes": "Codes", "base": "Base", "n": "N", "method": "Method"}
TITLES |= {"setting": "Value"}
VARIANTS = ("base", "codes", "data")
# methods on the page; summaries have all
SHOWN_METHODS = ("Marginal", "CondCP", PAPER, "FaReG (levels)", "Oracle partition")
OTHER_SETTINGS = "FaReG (paper, synthetic settings)"
SHOWN_FOR_VARIANTS = ("Marginal", "AFCP2", PAPER, OTHER_SETTINGS, "FaReG (levels)")
MATCHED = "Marginal at the size of "
SELECTIONS = {"first": "Color", "second": "Gender", "both": "Both"}
SLAB_NAMES = {"linear": "WSC", "quadratic": "WSC+"}
FEATURES: dict[Any, str] = {10: "all ten", 3: "the first three", 2: "the first two"}
SETTINGS = ("delta", "beta", "n_draws", "epochs", "batch_size", "learning_rate", "hidden_sizes")
NOTES = "notes.toml"

Parts = list[str]
Figures = dict[str, Any]


# --- numbers as text ----------------------------------------------------------------------------


def in_digits(values: Iterable[Any], digits: int = 3, sign: str = "") -> list[str]:
    """Return numbers as text, empty for a missing one."""
    return ["" if pd.isna(value) else f"{value:{sign}.{digits}f}" for value in values]


def with_error(value: float, error: float, digits: int = 3) -> str:
    """Return ``0.904±0.005``, or only the value if there is no standard error.

    >>> with_error(0.90412, 0.0049), with_error(2.7, float("nan"), 2)
    ('0.904±0.005', '2.70')
    """
    (text,) = in_digits([value], digits)
    return text if not text or pd.isna(error) else f"{text}±{error:.{digits}f}"


def with_errors(summary: pd.DataFrame, name: str) -> list[str]:
    """Return a column of a summary as text: mean, standard error, the paper's number."""
    digits, missing = DIGITS.get(name, 3), [np.nan] * len(summary)
    errors, paper = (summary.get(f"{name}_{end}", missing) for end in ("se", "paper"))
    triples = zip(summary[name], errors, in_digits(paper, digits), strict=True)
    return [f"{with_error(a, e, digits)}{f' ({p})' if p else ''}" for a, e, p in triples]


def markdown_table(table: pd.DataFrame) -> str:
    """Return a table of text as Markdown.

    >>> print(markdown_table(pd.DataFrame({"Method": ["Split"], "Size": ["1.20"]})))
    | Method | Size |
    |---|---|
    | Split | 1.20 |
    """
    rows = [list(map(str, table.columns)), *table.astype(str).to_numpy().tolist()]
    head, *body = [f"| {' | '.join(cells)} |" for cells in rows]
    return "\n".join([head, "|" + "---|" * table.shape[1], *body])


def as_csv(table: pd.DataFrame) -> str:
    return table.to_csv(index=False, float_format="%.6f")


def template_environment() -> SandboxedEnvironment:
    """Return the environment for the templates of this folder, and for conclusions."""
    return SandboxedEnvironment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # Markdown
    )


# --- summaries ----------------------------------------------------------------------------------


def summarise(rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Return mean and standard error of every number, with settings in order of appearance.

    ``rows`` has one row per repetition, with the columns ``by``, which make a setting, and
    ``seed``. The result has ``by``, ``repeats``, then ``name`` and ``name_se`` for each number;
    with one repetition, the standard error is missing.
    """
    numbers = rows.drop(columns=[*by, "seed"]).select_dtypes("number").columns
    grouped = rows.groupby(by, sort=False, dropna=False)
    columns: dict[str, pd.Series] = {"repeats": grouped["seed"].nunique()}
    for name in numbers:
        columns |= {name: grouped[name].mean(), f"{name}_se": grouped[name].sem()}
    return pd.DataFrame(columns).reset_index()


@cache
def printed() -> pd.DataFrame:
    """Return the numbers that the paper prints: target, n, method, setting, metric, paper."""
    return pd.read_csv(Path(__file__).with_name("printed.csv"))


def with_paper(summary: pd.DataFrame, target: str) -> pd.DataFrame:
    """Return a summary with a column ``metric_paper`` for each metric that the paper prints.

    A printed number without n or setting holds for all of them. Numbers of slabs go to the rows
    with the two features that make the group.
    """
    summary = summary.copy()
    for number in printed()[printed()["target"] == target].to_dict("records"):
        same = summary["method"] == number["method"]
        for name in ("n", "setting"):
            if name in summary and pd.notna(number[name]):
                same &= summary[name] == number[name]
        if "features" in summary:
            same &= summary["features"] == summary["features"].min()
        summary.loc[same, f"{number['metric']}_paper"] = number["paper"]
    return summary


def write_target(name: str, rows: pd.DataFrame, folder: Path, *, quick: bool = False) -> list[Path]:
    """Write the summary and the figures of a target and return their paths."""
    if "fit_seconds" in rows:
        rows = rows.assign(seconds=rows["fit_seconds"] + rows["predict_seconds"])
    report = REPORTS[TARGETS[name].report]
    mark = {"quick": True} if quick else {}
    summary = report.summary(rows).assign(version=version("fareg"), **mark)
    drawn = [
        write_file(folder / name / f"{title}.svg", draw_image(figure, "svg"))
        for title, figure in report.figures(summary, rows).items()
    ]
    return [write_file(folder / name / "summary.csv", as_csv(summary)), *drawn]


# --- the page -----------------------------------------------------------------------------------


def write_page(page: Path) -> Path:
    """Write the page of the summaries in the folder of the same name next to it."""
    folder = page.with_suffix("")
    paths = {name: folder / name / "summary.csv" for name in TARGETS}
    summaries = {
        name: with_paper(pd.read_csv(path, dtype={"version": str}), name)
        for name, path in paths.items()
        if path.is_file()
    }
    environment, path = template_environment(), folder / NOTES
    numbers = {
        "mean": lambda *args, **where: _value(summaries, *args, **where)[0],
        "value": lambda *args, **where: with_error(*_value(summaries, *args, **where)),
        "values": lambda *args, **where: _values(summaries, *args, **where),
    }
    texts = tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    notes = {k: environment.from_string(v).render(numbers).strip() for k, v in texts.items()}
    sections = [
        {
            "title": TARGETS[name].title,
            "note": notes.get(name, ""),
            "parts": REPORTS[TARGETS[name].report].parts(summary),
            "figures": sorted(path.stem for path in (folder / name).glob("*.svg")),
            "name": name,
            "quick": "quick" in summary,
            "version": ", ".join(summary.get("version", pd.Series(["unknown"])).unique()),
        }
        for name, summary in summaries.items()
    ]
    plans = {"": Plan(1), " (quick)": Plan(1).quickly()}  # by their mark on the page
    used = {section["quick"] for section in sections} or {False}
    plans = {mark: plan for mark, plan in plans.items() if bool(mark) in used}
    text = environment.get_template("reproduction.md.jinja").render(
        folder=folder.name,
        sections=sections,
        settings=markdown_table(_settings_table(plans)),
        directions=[f"{plan.metrics.n_directions:,}{mark}" for mark, plan in plans.items()],
        lead=notes.get("lead", ""),
        versions=sorted({section["version"] for section in sections}),
        missing=[TARGETS[name].title for name in TARGETS if name not in summaries],
    )
    return write_file(page, text)


def _value(
    summaries: dict[str, pd.DataFrame], target: str, metric: str, **where: Any
) -> tuple[float, float, int]:
    (mean,) = _values(summaries, target, metric, **where)
    errors = f"{metric}_se" in summaries[target]
    error = _values(summaries, target, f"{metric}_se", **where)[0] if errors else np.nan
    return mean, error, DIGITS.get(metric, 3)


def _values(
    summaries: dict[str, pd.DataFrame], target: str, metric: str, **where: Any
) -> list[float]:
    rows = summaries[target]
    for name, value in where.items():
        rows = rows[rows[name] == value]
    return rows[metric].tolist()


def _settings_table(plans: dict[str, Plan]) -> pd.DataFrame:
    """Return the hyperparameters of FaReG (paper), and those of the base network."""
    models: dict[str, dict[str, Any]] = {}
    names = [item.name for item in fields(BaseModel) if item.name != "kind"]
    for mark, plan in plans.items():
        for data in ("synthetic", "nursery"):
            model = PublishedFaReGClassifier.published(data=data, **dict(plan.epochs))
            values = model.get_params(deep=False)
            models[f"{PAPER}, {data}{mark}"] = {name: values[name] for name in SETTINGS}
        models[f"Base network{mark}"] = {name: getattr(plan.base, name) for name in names}
    pairs = [(name, ", ".join(f"{k} {v}" for k, v in m.items())) for name, m in models.items()]
    return pd.DataFrame(pairs, columns=["Model", "Hyperparameters"])


# --- kinds of targets ---------------------------------------------------------------------------


def _summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Summarise rows by their labels, with the gain of a method over sets of equal size."""
    by = [name for name in LABELS if name in rows]
    if "method" in rows and rows["method"].str.startswith(MATCHED).any():
        keys = [*(name for name in by if name != "method"), "seed", "method"]
        matched = rows[rows["method"].str.startswith(MATCHED)]
        matched = matched.assign(method=matched["method"].str.removeprefix(MATCHED))
        coverage = matched.set_index(keys)["group_coverage"].rename("matched")
        rows = rows.merge(coverage, left_on=keys, right_index=True, how="left")
        rows = rows.assign(gain=rows["group_coverage"] - rows.pop("matched"))
    return summarise(rows, by)


def _lead(summary: pd.DataFrame) -> str:
    few, many = summary["repeats"].min(), summary["repeats"].max()
    count = f"{many}" if few == many else f"{few} to {many}"
    text = f"{count} repetition{'s' if many > 1 else ''}."
    if "n" in summary and summary["n"].nunique() == 1:
        text = f"N = {summary['n'].iloc[0]}, {text}"
    if "states" in summary:
        states = summary["states"].iloc[0]
        text += f" People of {states}; the paper's: {', '.join(PAPER_STATES)}."
    return text


def _shown(summary: pd.DataFrame) -> pd.DataFrame:
    """Return the methods that the page shows: those that decide or that the paper prints."""
    is_printed = summary.filter(like="_paper").notna().any(axis=1)
    shown = summary[summary["method"].isin(SHOWN_METHODS) | is_printed]
    return shown if len(shown) else summary


def _table(summary: pd.DataFrame, metrics: Sequence[str] = DECIDING) -> str:
    """Return a table of metrics, without constant columns other than the method."""
    shown = pd.DataFrame(
        {
            title: summary[name]
            for name, title in TITLES.items()
            if name in summary and (name == "method" or summary[name].nunique() > 1)
        }
    )
    for name in metrics:
        if name in summary:
            shown[METRICS[name]] = with_errors(summary, name)
    return markdown_table(shown)


def _size_parts(summary: pd.DataFrame) -> Parts:
    summary = summary[summary["n"] == summary["n"].max()]
    measures = summary[["group_coverage", "size"]]
    grown = measures - measures[summary["method"] == "Marginal"].to_numpy()
    gain = (grown["group_coverage"] / grown["size"]).where(grown["size"] > 1e-3)
    shown = _shown(summary.assign(per_label=gain))
    return [_lead(shown), _table(shown, ("group_coverage", "size", "per_label"))]


def _comparison_parts(summary: pd.DataFrame) -> Parts:
    shown, is_printed = _shown(summary), "group_coverage_paper" in summary
    if any(name in summary and summary[name].nunique() > 1 for name in VARIANTS):
        shown = shown[shown["method"].isin(SHOWN_FOR_VARIANTS if is_printed else [PAPER])]
    return [_lead(summary), _table(shown, DECIDING if is_printed else UNPRINTED)]


def _sweep_parts(summary: pd.DataFrame) -> Parts:
    if "size_paper" not in summary:  # the figure shows it
        return [_lead(summary)]
    return [_lead(summary), _table(_shown(summary), ("group_coverage", "size"))]


def _panels(
    summary: pd.DataFrame, rows: pd.DataFrame, x: str = "n", panels: dict[str, str] = PANELS
) -> Figures:
    label, log_x = {"n": "N", "setting": "value"}[x], bool(summary[x].max() > 1)
    return {"panels": draw_panels(summary, panels, x, x_label=label, log_x=log_x)}


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
    wide = few.assign(text=with_errors(few, "value"))
    wide = wide.pivot(index="method", columns="setting", values="text").add_prefix("delta = ")
    lead = f"On {FEATURES[few['features'].iloc[0]]} features; {_lead(summary)}"
    return [lead, markdown_table(wide.reset_index(names="Metric"))]


def _cdf_rows(rows: pd.DataFrame) -> pd.DataFrame:
    rows = rows[(rows["delta"] == rows["delta"].max()) & (rows["search"] == "random")]
    return rows.assign(method=rows["kind"].map(SLAB_NAMES))


def _cdf_summary(rows: pd.DataFrame) -> pd.DataFrame:
    values = _cdf_rows(rows).explode("values").astype({"values": float})
    by_curve = values.groupby(["features", "method"], sort=False)["values"]
    quantiles = by_curve.describe(percentiles=[0.05, 0.25, 0.5, 0.75])
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
    ends = summary.groupby("step")["inside"].agg(["min", "max"])
    wide = {f"+{step}": [f"{low:.2f} to {high:.2f}"] for step, low, high in ends.itertuples()}
    lead = (
        f"N = {summary['n'].iloc[0]}. Share of reconstructed rows in the true group, by the step "
        f"along the latent; lowest and highest of {summary['seed'].nunique()} seeds."
    )
    return [lead, markdown_table(pd.DataFrame(wide))]


def _time_parts(summary: pd.DataFrame) -> Parts:
    lines = []
    for method, rows in summary.groupby("method", sort=False):
        n, seconds = rows["n"].to_numpy(float), rows["seconds"].to_numpy(float)
        line = {"Method": method}
        line |= {f"N = {n[i]:.0f}": in_digits([seconds[i]], 2)[0] for i in (0, -1)}
        if len(n) > 2:
            slope, fixed = np.polyfit(n, seconds, 1)
            r2 = 1 - ((seconds - slope * n - fixed) ** 2).mean() / seconds.var()
            exponent = np.polyfit(np.log(n), np.log(seconds), 1)[0]
            names = ("Seconds per 1,000 rows", "R2 of the line", "Exponent")
            line |= dict(zip(names, in_digits((1000 * slope, r2, exponent)), strict=True))
        lines.append(line)
    return [_lead(summary), markdown_table(pd.DataFrame(lines))]


@dataclass(frozen=True)
class Report:
    """How a kind of target is shown on the page, drawn and summarised."""

    parts: Callable[[pd.DataFrame], Parts]
    figures: Callable[[pd.DataFrame, pd.DataFrame], Figures] = lambda summary, rows: {}
    summary: Callable[[pd.DataFrame], pd.DataFrame] = _summary


REPORTS = {
    "sizes": Report(_size_parts, _panels),
    "selection": Report(lambda summary: [_lead(summary)], _selection_figures),
    "comparison": Report(_comparison_parts),
    "sweep": Report(_sweep_parts, partial(_panels, x="setting")),
    "slabs": Report(_slab_parts, summary=_slab_summary),
    "cdf": Report(_cdf_parts, _cdf_figures, _cdf_summary),
    "pictures": Report(
        _picture_parts,
        lambda summary, rows: {"reconstructions": draw_moves(rows)},
        lambda rows: rows[["n", "seed", "step", "inside", "membership"]],
    ),
    "time": Report(_time_parts, partial(_panels, panels={"seconds": "Time Cost (s)"})),
}
