"""What an audit writes for others: JSON by its schema, Markdown, a model card, tables, sizes."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from markupsafe import escape

from fareg import FaregError, Rule, audit
from fareg.report import render_report

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "audit.schema.json").read_text())
KINDS = {
    "object": dict, "array": list, "string": str, "boolean": bool, "null": type(None),
    "integer": int, "number": (int, float),
}  # fmt: skip


def check(value, schema, where="audit"):
    """Check a value against the part of JSON Schema that the file uses."""
    if "$ref" in schema:
        check(value, SCHEMA["$defs"][schema["$ref"].removeprefix("#/$defs/")], where)
    for part in schema.get("allOf", ()):
        check(value, part, where)
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    is_flag = isinstance(value, bool)
    fits = any(isinstance(value, KINDS[k]) and (is_flag == (k == "boolean")) for k in kinds)
    assert fits or not kinds, (where, value)
    assert value in schema.get("enum", [value]), (where, value)
    assert value == schema.get("const", value), (where, value)
    if isinstance(value, dict):
        assert set(schema.get("required", ())) <= set(value), where
        for name, own in schema.get("properties", {}).items():
            if name in value:
                check(value[name], own, f"{where}.{name}")
    elif isinstance(value, list) and "items" in schema:
        for i, item in enumerate(value):
            check(item, schema["items"], f"{where}[{i}]")
    elif isinstance(value, int | float) and not is_flag:
        assert schema.get("minimum", value) <= value <= schema.get("maximum", value), where


@pytest.fixture(scope="module")
def unequal():
    """Audit sets that miss a third of the north and hold twice the labels in the south."""
    rng = np.random.default_rng(0)
    n = 2000
    X = pd.DataFrame(
        {"area|x": rng.choice(["north", "south", "<b>"], n), "age": rng.normal(size=n)}
    )
    X["copy"] = X["area|x"].map({"north": 1, "south": 2, "<b>": 3})
    y, area = rng.integers(0, 4, n), X["area|x"]
    sets = np.zeros((n, 4), dtype=bool)
    sets[np.arange(n), y] = rng.random(n) < np.where(area == "north", 0.75, 0.99)
    sets[np.arange(n), (y + 1) % 4] |= area == "south"
    named = ["area|x", "copy"]
    return (X, y, sets), audit(
        X, y, sets, sensitive_features=named, predicted=y, measures=False, random_state=0
    )


def test_json_follows_its_schema(unequal):
    check(json.loads(json.dumps(unequal[1].to_dict())), SCHEMA)
    check(audit([[0.0]], ["a"], [["a", "b"]], measures=False).to_dict(), SCHEMA)
    with pytest.raises(AssertionError):
        check({**unequal[1].to_dict(), "main_group": "first"}, SCHEMA)


def test_the_first_table_says_each_thing_once(unequal):
    (_, _, sets), result = unequal
    table = result.table
    kinds = ["everyone", "level", "finding", "unequal", *["label"] * 4]
    assert table["kind"].tolist() == kinds
    assert not table["group"].duplicated().any()
    everyone = table.iloc[0]
    size = sets.sum(axis=1)
    assert everyone["mean_size"] == size.mean()
    assert everyone["singletons"] == np.mean(size == 1) == 1 - everyone["referred"]
    assert everyone["empty"] == np.mean(size == 0)
    assert everyone["top_label_right"] == 1
    assert everyone["size_low"] < size.mean() < everyone["size_high"]
    pairs = result.sizes[result.sizes["kind"] == "pair"]
    assert pairs["mean_size"].between(0, 2).all()


def test_sizes_have_findings_of_their_own(unequal):
    result = unequal[1]
    (found,), (larger,) = result.findings, result.unequal
    assert "north" in str(found.rule) or "copy" in str(found.rule)
    assert larger.mean_size > 1.25 * larger.others_size
    assert result.status == "finding"
    assert [result.fails(gate) for gate in ("found", "low", "unequal")] == [True, False, True]


def test_equal_sizes_are_rarely_called_unequal():
    said = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X = pd.DataFrame({"a": rng.choice(list("uvw"), 600), "b": rng.normal(size=600)})
        sets = rng.random((600, 5)) < 0.5
        y = rng.integers(0, 5, 600)
        said += bool(audit(X, y, sets, measures=False, random_state=seed).unequal)
    assert said <= 2


def test_the_card_is_yaml_and_markdown_in_which_names_are_no_markup(unequal, tmp_path):
    result = unequal[1]
    card = result.to_card(tmp_path / "card.md")
    assert (tmp_path / "card.md").read_text() == card
    _, head, body = card.split("---\n", 2)
    (entry,) = yaml.safe_load(head)["model-index"]
    metrics = {m["type"]: m["value"] for m in entry["results"][0]["metrics"]}
    assert metrics["coverage"] == round(result.coverage, 4)
    assert result.to_markdown() == body.lstrip()
    assert "<b>" not in card
    rows = [line for line in body.splitlines() if line.startswith("| ")]
    assert len(rows) == len(result.table) + 1
    assert {line.replace("\\|", "").count("|") for line in rows} == {8}
    with pytest.raises(FaregError, match=r"must end in \.md"):
        result.to_card(tmp_path / "card.txt")


def test_people_read_groups_like_rules_and_files_keep_their_names(unequal, tmp_path):
    result = unequal[1]
    result.to_html(tmp_path / "audit.html")
    page, numbers = (tmp_path / "audit.html").read_text().split('<script type="application/json"')
    for text in (page, result.summary(), result.to_markdown()):
        assert "x = south" in text
        assert "x=south" not in text
    assert '"area|x=south"' in numbers
    assert "area|x=south" in set(result.levels["group"])


def test_people_read_all_rows_of_a_finding_next_to_those_that_tested_it(unequal, tmp_path):
    result = unequal[1]
    (found,) = result.findings
    n, tested = int(found.mask.sum()), f"tested on {found.rate.n} rows on average"
    assert n > found.rate.n
    assert result.to_dict()["groups"][0]["n_rows"] == n
    assert result.table.set_index("group")["n"][found.rule.text] == found.rate.n
    line = next(
        line for line in result.summary().splitlines() if tested in line and "(found" in line
    )
    assert f"  {n}  " in line
    lines = [line for line in result.to_card().splitlines() if line.startswith("| ")]
    assert tested in lines[2]  # directly under everyone
    assert lines[2].split(" | ")[1] == str(n)
    assert f"<td>{n}</td><td>{found.rate.n}</td>" in result._repr_html_()
    result.to_html(tmp_path / "audit.html")
    page = (tmp_path / "audit.html").read_text().split('<script type="application/json"')[0]
    assert f"<span>{n} rows" not in page
    table = page.split('<table id="first">')[1].split("</table>")[0]
    assert table.index(tested) < table.index("= south")
    assert page.count(tested) >= 4  # headline, tile, first table, the group
    assert f"of {found.rate.n} rows" not in page + result.summary() + result.to_card()


def test_a_command_is_code_and_copies_as_it_is(unequal):
    found = replace(unequal[1].findings[0], rule=Rule.parse("age > 60 and a`b = i&j"))
    settings = {"protect": "fareg fit a.csv --protect"}
    result = replace(unequal[1], groups=(found,), settings=settings)
    command = "fareg fit a.csv --protect 'age > 60 and a`b = i&j'"
    assert result.to_markdown().count(f": `` {command} ``\n") == 1
    for page in (result._repr_html_(), render_report(result.to_dict())):
        assert f"<code>{escape(command)}</code>" in page
    assert result.decided.next_steps[0].endswith(command)
    assert "send this to its owner" in result.decided.next_steps[0]


def test_every_table_is_a_file(unequal, tmp_path):
    unequal[1].to_tables(tmp_path / "t")
    names = {path.stem for path in (tmp_path / "t").iterdir()}
    assert names == {"table", "sizes", "levels", "pairs", "by_label", "set_sizes", "slabs"}
    assert len(pd.read_csv(tmp_path / "t" / "sizes.csv")) == len(unequal[1].sizes)


def test_the_opening_says_what_was_promised_to_whom_and_what_was_not_read(unequal):
    told = unequal[1].opening
    assert len(told) == 3
    assert "90% of people, taken all together" in told[0]
    assert "it is not known whether the model reads" in told[2]
    assert all(sentence in unequal[1].summary() for sentence in told)
