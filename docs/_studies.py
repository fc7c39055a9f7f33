"""Facts for the pages from stored rows: one function per study, from a file to a table or a dict.

Every row names the version it was measured with. Of a case measured with two versions, the newer
rows count, and pages show which version it is.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fareg.experiments import _benchmark as real_tables
from fareg.experiments._problems import read_settings

ROOT = Path(__file__).parents[1]
SPLIT, FAREG, ORACLE = "split", "FaReG", "oracle"
NAMES = {"FaReG (levels)": FAREG, "oracle partition": ORACLE}
MODELS = {"boosting": "boosting (default)", "forest": "small forest"}
RANDOM = "random groups"
METHODS = {  # in the order of the page
    **{name: name for name in (SPLIT, "k-means cells", "PLCP", "CondCP", "RCP")},
    "split of the size of levels": "split, as large as FaReG",
    **{name: name for name in (FAREG, ORACLE)},
}


@cache
def stored(name: str) -> pd.DataFrame:
    """Return stored rows; versions are text."""
    return pd.read_csv(ROOT / name, dtype={"version": "str", "learner": "str"})


def newest(rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Return the rows of the newest version of each case; rows without a version are the oldest."""
    versions = rows.get("version", pd.Series("0", index=rows.index)).fillna("0").astype(str)
    order = sorted(versions.unique(), key=number)
    place = versions.map(order.index)
    cases = [rows[key].astype("str") for key in by]
    return rows[place == place.groupby(cases).transform("max")]


def number(version: str) -> tuple[int, ...]:
    """Return a version as numbers, which can be compared."""
    return tuple(map(int, version.split(".")))


def version_of(rows: pd.DataFrame) -> str:
    """Return the versions of rows as text, oldest first."""
    return ", ".join(sorted(rows["version"].unique(), key=number))


def quality() -> pd.DataFrame:
    """Return the rows of synthetic tables, with the short names of methods and kinds."""
    rows = stored("benchmarks/quality.csv").replace({"method": NAMES})
    is_random = rows["shape"].str.match(r"random \d")
    kind = np.select([is_random, rows["shape"].str.startswith("noise")], [RANDOM, "noise"], "shape")
    return rows.assign(kind=kind)


def against_oracle(rows: pd.DataFrame, by: list[str], case: list[str]) -> pd.DataFrame:
    """Return coverage of the worst off and size next to the oracle's; errors are over cases."""
    wide = rows.pivot_table(["worst", "size"], [*by, *case], "method")
    per_case = pd.DataFrame(
        {
            **{method: wide["worst", method] for method in (SPLIT, FAREG, ORACLE)},
            "short": wide["worst", ORACLE] - wide["worst", FAREG],
            "size to oracle": wide["size", FAREG] / wide["size", ORACLE] - 1,
            "split size to oracle": wide["size", SPLIT] / wide["size", ORACLE] - 1,
        }
    )
    groups = per_case.groupby(by, sort=False)
    found = groups.mean()
    found.insert(0, "tables", groups.size())
    found.insert(5, "error", groups["short"].sem())
    return found.reset_index()


def shapes() -> pd.DataFrame:
    """Return every shape: coverage of the worst off by split sets, FaReG and the oracle."""
    rows = quality()
    rows = newest(rows[rows["kind"] == "shape"], ["base", "N", "shape"])
    return against_oracle(rows, ["base", "N", "shape", "held_out", "version"], ["seed"])


def random_groups() -> pd.DataFrame:
    """Return every table of random groups."""
    rows = quality()
    rows = newest(rows[rows["kind"] == RANDOM], ["base", "N", "shape"])
    return against_oracle(rows, ["base", "N", "shape", "version"], ["seed"])


def mechanisms() -> pd.DataFrame:
    """Return the tables of ``mechanisms.py``, by group."""
    rows = stored("benchmarks/mechanisms.csv").replace({"method": NAMES})
    rows = newest(rows, ["N", "mechanism", "group"])
    return against_oracle(rows, ["N", "group", "version"], ["mechanism", "seed"])


def methods() -> pd.DataFrame:
    """Return all methods, means over shapes, of the tables on which all were measured."""
    rows = quality()
    rows = rows[(rows["kind"] == "shape") & (rows["base"] == "forest")]
    case = ["shape", "N", "seed", "version"]
    everyone = rows["method"].eq("PLCP").groupby([rows[key] for key in case]).transform("any")
    rows = newest(rows[everyone & rows["method"].isin(METHODS)], ["N", "shape"])
    rows = rows.replace({"method": METHODS})
    oracle = rows[rows["method"] == ORACLE].set_index(case)[["worst", "size"]]
    rows = rows.join(oracle.add_suffix(" of oracle"), on=case)
    rows["short"] = rows["worst of oracle"] - rows["worst"]
    rows["size to oracle"] = rows["size"] / rows["size of oracle"] - 1
    keys = ["N", "version", "method"]
    measures = ["worst", "average", "short", "size to oracle", "seconds"]
    per_shape = rows.groupby([*keys, "shape"], sort=False)[measures].mean()
    found = per_shape.groupby(keys, sort=False).mean()
    found.insert(1, "lowest over shapes", per_shape["worst"].groupby(keys, sort=False).min())
    place = {name: number for number, name in enumerate(METHODS.values())}
    return found.reset_index().sort_values(
        ["N", "method"], key=lambda column: column.replace(place)
    )


def overview() -> list[dict[str, Any]]:
    """Return one line per study of planted groups; means and errors are over shapes or tables."""
    lines = []
    for table, name in ((shapes(), "shapes"), (random_groups(), "random groups")):
        for (base, n), part in table.groupby(["base", "N"]):
            lines.append(_line(part, f"{part['shape'].nunique()} {name}", MODELS[base], n))
    for n, part in mechanisms().groupby("N"):
        hard = part[part["group"] != "nobody"]
        lines.append(_line(hard, f"{len(hard)} groups, 5 mechanisms", "boosting, logistic", n))
    return lines


def _line(part: pd.DataFrame, what: str, model: str, n: int) -> dict[str, Any]:
    keys = [SPLIT, FAREG, ORACLE, "short", "size to oracle"]
    return {
        "what": what,
        "model": model,
        "n": n,
        "version": version_of(part),
        "error": part["short"].sem(),
        **part[keys].mean(),
    }


def noise() -> dict[str, Any]:
    """Return what happens where nothing can be learned."""
    rows = quality()
    rows = newest(rows[rows["kind"] == "noise"], ["base", "N", "shape"])
    wide = rows.pivot_table(["size"], ["shape", "N", "seed"], "method")
    ratio = wide["size", FAREG] / wide["size", SPLIT] - 1
    return {"tables": len(wide), "mean": ratio.mean()}


def naming() -> dict[str, dict[str, Any]]:
    """Return per part of ``naming.py`` how often groups were named, and how well."""
    rows = newest(stored("benchmarks/naming.csv"), ["part"])
    return {
        str(part): {
            "runs": len(runs),
            "named": int((runs["named"] > 0).sum()),
            "agreement": runs["agreement"].mean(),
            "version": version_of(runs),
        }
        for part, runs in rows.groupby("part")
    }


def rare() -> dict[str, Any]:
    """Return how far methods stay below the oracle if one or two in a hundred are worse off."""
    rows = newest(stored("benchmarks/rare.csv"), ["N", "shape", "method"])
    wide = rows.pivot_table(["worst", "size"], ["shape", "seed"], "method")
    lines = {}
    for method in ("split", "levels", "default"):
        short = wide["worst", "oracle"] - wide["worst", method]
        ratio = wide["size", method] / wide["size", "oracle"] - 1
        lines[method] = {"short": short.mean(), "error": short.sem(), "size": ratio.mean()}
    n = int(rows["N"].iloc[0])
    return {"lines": lines, "tables": len(wide), "n": n, "version": version_of(rows)}


def audits() -> dict[str, int]:
    """Return how many planted failures audits find, and how often another seed agrees."""
    case = ["table", "score", "case", "kind"]
    rows = newest(stored("benchmarks/auditing.csv"), case).drop_duplicates(case, keep="last")
    planted, fair = rows[rows["kind"] != "fair"], rows[rows["kind"] == "fair"]
    is_clear = (planted["group_rows"] >= 200) & (planted["covered"] <= 0.75)
    is_found = planted["overlap"] >= 0.6
    some = rows[rows["findings"] > 0]
    return {
        "tables": rows["table"].nunique(),
        "n_clear": int(is_clear.sum()),
        "clear_found": int((is_clear & is_found).sum()),
        "n_mild": int((~is_clear).sum()),
        "mild_found": int((~is_clear & is_found).sum()),
        "fair": len(fair),
        "fair_found": int((fair["findings"] > 0).sum()),
        "some": len(some),
        "same": int((some["again_overlap"] >= 0.6).sum()),
    }


def versions() -> list[dict[str, Any]]:
    """Return the newest defaults next to those of 0.2, on the same rows of the same tables."""
    rows, case = stored("benchmarks/defaults.csv"), ["tables", "base", "shape", "N", "seed"]
    old, new = "old", "new"
    of_02 = rows["version"] == "0.2"
    both = pd.concat([rows[of_02].assign(which=old), newest(rows[~of_02], case).assign(which=new)])
    wide = both.pivot_table(["worst", "size"], case, "which").dropna()
    lines = []
    for tables, part in wide.groupby("tables"):
        gain = part["worst", new] - part["worst", old]
        ratio = part["size", new] / part["size", old] - 1
        lines.append(
            {
                "tables": f"{len(part)} {tables}",
                "old": part["worst", old].mean(),
                "new": part["worst", new].mean(),
                "gain": gain.mean(),
                "error": gain.sem(),
                "size": ratio.mean(),
                "size_error": ratio.sem(),
            }
        )
    return lines


def real_results() -> pd.DataFrame:
    """Return the rows of published tables, but for a method that the package no longer has."""
    results = stored("docs/real-data/results.csv")
    results = results[results["method"] != "FaReG (partition)"]
    results = newest(results, [*real_tables.SETTING, "method"])
    return results.assign(error=results["error"].fillna(""))


def real_page() -> str:
    """Return the page of published tables, as ``fareg benchmark`` writes it."""
    path = ROOT / "benchmarks" / "tables" / "benchmark.toml"
    settings = read_settings(path)
    return real_tables.page_text(
        real_results(), settings.tables, path.parent, "real-data", settings.sizes
    )


def real_by_table() -> pd.DataFrame:
    """Return published tables one by one."""
    return real_tables.table_by_table(real_results())


def real_figure(labels: str) -> Any:
    """Draw gains on published tables."""
    return real_tables.gains_figure(real_tables.compared(real_results(), labels))


@cache
def real() -> dict[str, Any]:
    """Return the methods on published tables, with labels as they are and with planted noise."""
    results = real_results()
    found: dict[str, Any] = {"version": version_of(results)}
    for labels in ("natural", "noise"):
        rows = real_tables.compared(results, labels)
        gain = real_tables.by_table(rows, "gain")
        group_gain = real_tables.by_table(rows, "group_gain")
        parts = {
            "coverage": real_tables.by_table(rows, "coverage").mean(),
            "worst": real_tables.by_table(rows, "worst_cells").mean(),
            "group": real_tables.by_table(rows, "group_coverage").mean(),
            "size": np.exp(np.log(real_tables.by_table(rows, "size_ratio")).mean()) - 1,
            "gain": gain.mean(),
            "group_gain": group_gain.mean(),
        }
        table = pd.DataFrame(parts)
        for measure, values in {"": gain, "group_": group_gain}.items():
            bounds = {name: real_tables.with_interval(values[name]) for name in values}
            table[f"{measure}low"] = pd.Series({name: low for name, (_, low, _) in bounds.items()})
            table[f"{measure}high"] = pd.Series({name: high for name, (*_, high) in bounds.items()})
        best = table.drop(index=["FaReG (levels)", "Oracle"], errors="ignore")
        named = rows[rows["method"] == "FaReG (levels)"]["n_named"]
        found[labels] = {
            "methods": table.to_dict("index"),
            "best_rival": best["group_gain"].fillna(best["gain"]).idxmax(),
            "most_gain": table["gain"].idxmax(),
            "spread": real_tables.spread(group_gain["FaReG (levels)"].dropna()),
            "tables": rows["table"].nunique(),
            "runs": len(named),
            "named": int((named > 0).sum()),
        }
    return found


def by_label() -> dict[str, Any]:
    """Return coverage by label and by stays in hospital, means over splits."""
    rows = newest(stored("benchmarks/by_label.csv"), ["method", "split"])
    means = rows.groupby(["method", "group"], sort=False)[["coverage", "size"]].mean()
    return {
        "groups": list(rows["group"].unique()),
        "rows": {
            method: {
                "coverage": means.loc[method, "coverage"].to_dict(),
                "size": means.loc[(method, "everyone"), "size"],
            }
            for method in rows["method"].unique()
        },
        "splits": rows["split"].nunique(),
        "version": version_of(rows),
    }


def monitor() -> dict[str, Any]:
    """Return how soon a monitor finds lost coverage, and how often it is wrong."""
    rows = newest(stored("benchmarks/monitor.csv"), ["groups", "what_changes", "misses_after"])
    lost = rows[rows["misses_after"].notna()].replace({np.nan: None})
    pairs = lost.groupby(["what_changes", "misses_after"], sort=False)
    return {
        "lines": [(*case, *pair.sort_values("groups").to_dict("records")) for case, pair in pairs],
        "false": rows["false_alarms"].max(),
        "runs": int(rows["runs"].iloc[0]),
        "version": version_of(rows),
    }


def shift() -> dict[str, Any]:
    """Return coverage of another population and size by kind of weights, means over seeds."""
    rows = stored("benchmarks/shift.csv")
    by_label = set(rows.loc[rows["weights"] == "by label", "problem"])
    rows = rows.replace(
        {"method": {"levels": FAREG}, "weights": {"known": "true", "by label": "true"}}
    )
    keys = ["problem", "method", "weights"]
    rows = newest(rows, keys)
    means = rows.groupby(keys, sort=False)[["coverage", "size"]].mean()
    errors = rows.groupby(keys)["coverage"].sem()
    wide = rows.pivot_table("coverage", ["problem", "seed"], ["method", "weights"])
    change: dict[str, str] = {}  # by learned weights, where the true ones are not known
    for method in (SPLIT, FAREG):
        moved = 100 * (wide[method, "learned"] - wide[method, "none"])[wide[SPLIT, "true"].isna()]
        found = moved.groupby("problem", sort=False).agg(["mean", "sem"]).loc[::-1]
        change[method] = " and ".join(
            f"{mean:+.1f}±{error:.1f}" for mean, error in found.to_numpy()
        )
    return {
        "by_label": by_label,
        "change": change,
        "lines": {
            problem: {
                (method, weights): means.loc[(problem, method, weights)].to_dict()
                for method in (SPLIT, FAREG)
                for weights in ("none", "learned", "true")
                if (problem, method, weights) in means.index
            }
            for problem in rows["problem"].unique()
        },
        "low": errors.min(),
        "high": errors.max(),
        "seeds": rows["seed"].nunique(),
        "rows": rows["effective_rows"].max(),
        "version": version_of(rows),
    }


def readme() -> dict[str, Any]:
    """Return facts for the README: gains of the paper and of the default at equal size."""
    found = []
    for target in ("condcp", "codes", "eight", "published"):  # the synthetic data at N = 2000
        rows = stored(f"docs/reproduction/{target}/summary.csv")
        found.append(rows.set_index("method")["gain"].dropna())
    gains = pd.concat(found)
    return {
        "runs": stored("benchmarks/groups.csv")["seed"].nunique(),
        "paper_gain": gains["FaReG (paper)"].max(),
        "default_gain": found[0]["FaReG (levels)"],
    }


def results() -> dict[str, Any]:
    """Return what the page of results shows."""
    rivals, lines = methods(), overview()
    default = [line for line in lines if "shapes" in line["what"] and "default" in line["model"]]
    return {
        "overview": lines,
        "shapes": {line["n"]: line for line in default},
        "methods": rivals,
        "methods_version": version_of(rivals),
        "noise": noise(),
        "naming": naming(),
        "audits": audits(),
        "rare": rare(),
        "versions": versions(),
        "real": real(),
        "by_label": by_label(),
        "monitor": monitor(),
        "shift": shift(),
    }


def first_picture() -> pd.DataFrame:
    """Return coverage and size by group, split sets next to those of FaReG, with errors."""
    rows = newest(stored("benchmarks/groups.csv"), ["Color", "Gender", "method", "seed"])
    rows = rows.assign(group=rows["Color"] + ", " + rows["Gender"].str.lower())
    groups = rows.groupby(["group", "method"])[["coverage", "size"]]
    return groups.mean().join(groups.sem().add_suffix("_error")).unstack("method")


def timing() -> dict[str, Any]:
    """Return the stored timings."""
    return json.loads((ROOT / "benchmarks" / "results.json").read_text(encoding="utf-8"))


def timings() -> pd.DataFrame:
    """Return every line that was timed."""
    lines = [
        {"section": name, **row, "version": section["version"]}
        for name, section in timing()["sections"].items()
        for row in section["rows"]
    ]
    return pd.DataFrame(lines)


def growth() -> pd.DataFrame:
    """Return seconds by number of rows."""
    curves = timing()["sections"]["growth"]["curves"]
    return pd.DataFrame(
        [
            {"method": c["name"], "rows of": c["axis"], "rows": n, "seconds": s}
            for c in curves
            for n, s in zip(c["sizes"], c["seconds"], strict=True)
        ]
    )


def against() -> dict[str, Any]:
    """Return the cost of version 0.2 and of this one: sizes, then jobs on quiet and busy cores."""
    rows = stored("benchmarks/against.csv")
    is_size = rows["unit"].isna()
    jobs = rows[~is_size].assign(unit=rows["unit"].where(rows["busy"] == 0, "busy"))
    wide = jobs.pivot(index="what", columns="unit", values=["old", "new"]).loc[
        jobs["what"].unique()
    ]
    return {
        "sizes": rows[is_size].set_index("what")[["old", "new"]].astype(int).to_dict("index"),
        "jobs": {
            what: {
                unit: (job["old", unit], job["new", unit]) for unit in ("seconds", "busy", "MiB")
            }
            for what, job in wide.iterrows()
        },
    }


def scale() -> dict[str, Any]:
    """Return what the page of scale and speed shows."""
    found = timing()
    sections = found["sections"]
    curves = {(c["name"], c["axis"]): c for c in sections["growth"]["curves"]}
    return {
        **found,
        "against": against(),
        "curves": curves,
        "load": max(part["load_before"] for part in sections.values()),
        "version": version_of(pd.DataFrame({"version": [p["version"] for p in sections.values()]})),
    }
