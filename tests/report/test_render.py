"""The page shows what the summary says, and nothing that it says can act."""

import html
import json
import re
from itertools import pairwise

import pytest

from fareg.report import render_report, words
from fareg.report._figures import BOTTOM, TOP, heat_cell, level_figure, slab_figure, tag, ticks
from fareg.report._render import embedded_json

EVIL = "<script>alert(1)</script>"


def minimal(**more):
    verdict = {"status": "pass", "label": "Fine", "sentence": "All is well."}
    return {"title": "Check", "verdict": verdict, "data": {"confidence_level": 0.9}, **more}


def test_a_summary_needs_little():
    page = render_report(minimal())
    assert "<h1>Check</h1>" in page
    assert "All is well." in page
    assert "<table" not in page
    assert "None" not in page


@pytest.mark.parametrize("status", ["finding", "low", "label", "unequal", "pass", "unclear"])
def test_every_status_has_colour_and_words(status):
    verdict = {"status": status, "label": "In words", "sentence": "A sentence."}
    page = render_report(minimal(verdict=verdict))
    assert f'class="verdict {status}"' in page
    assert "In words" in page


def test_before_and_after_stand_side_by_side():
    sized = {"n": 50, "mean_size": 1.5, "singletons": 0.5, "named": True, "p_value": 0.01}
    both = [{"group": "north", "coverage": share, "low": 0.6, "high": 0.95} for share in (0.7, 0.9)]
    before, after = ([{**row, **sized, "made_worse": True}] for row in both)
    labels = ["Split conformal", "FaReG"]
    page = render_report(minimal(before=before, after=after, comparison_labels=labels))
    table = re.search(r'<table id="changes">.*?</table>', page, re.S).group()
    for text in ("70.0%", "90.0%", "Split conformal", "made worse", "p-value before 0.010"):
        assert text in table


def test_embedded_json_comes_back_and_cannot_end_its_element(evil_summary):
    text = str(embedded_json(evil_summary))
    assert json.loads(text) == evil_summary
    assert not set(text) & set("<>&")
    page = render_report(evil_summary)
    found = re.search(r'<script type="application/json" id="numbers">(.*?)</script>', page, re.S)
    assert json.loads(found.group(1)) == evil_summary


def test_texts_are_escaped_everywhere(evil_summary):
    page = render_report(evil_summary)
    assert page.count("<script") == 2  # the numbers, and the page's own
    assert "alert(1)" in page
    assert EVIL not in page
    assert html.escape(EVIL) in page


def test_the_page_is_complete_small_and_alone(evil_summary):
    page = render_report(evil_summary)
    assert len(page.encode()) < 3_000_000
    addresses = set(re.findall(r"https?://[^\s\"'<]+", page))
    assert addresses == {"http://www.w3.org/2000/svg"}  # the name of a format, not a request
    headings = [int(level) for level in re.findall(r"<h([1-6])", page)]
    assert headings[0] == 1
    assert headings.count(1) == 1
    steps = [b - a for a, b in pairwise(headings)]
    assert max(steps) <= 1
    ids = re.findall(r'\sid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    for target in re.findall(r'href="#([^"]+)"', page) + re.findall(r'labelledby="([^"]+)"', page):
        assert set(target.split()) <= set(ids)


@pytest.mark.parametrize("coverage", [0.0, 0.3, 0.62, 0.9, 1.0])
def test_a_figure_of_levels_holds_what_it_draws(coverage):
    rows = [
        {"level": level, "n": 9, "before": share, "before_low": share, "before_high": share}
        | {"after": share, "after_low": max(share - 0.1, 0), "after_high": min(share + 0.1, 1)}
        for level, share in enumerate([coverage, coverage])
    ]
    drawn = level_figure("levels", "Coverage by level", rows, "", 0.9)
    heights = [float(y) for y in re.findall(r' (?:y1|y2|cy)="([^"]*)"', drawn)]
    assert heights
    assert min(heights) >= TOP
    assert max(heights) <= BOTTOM
    assert 'class="target"' in drawn


def test_figures_speak_and_missing_numbers_are_drawn_as_nothing():
    keys = ("value", "held_out", "null_low", "null_high")
    slabs = [dict.fromkeys(keys, 0.8) | {"delta": delta} for delta in (0.1, 0.5)]
    drawn = slab_figure("WSC+", slabs, 0.9)
    assert 'role="img"' in drawn
    assert "<title" in drawn
    assert "smallest share of rows in a slab, 10%: 80.0% held out, 80.0% in-sample;" in drawn
    assert "<script" not in drawn
    assert "polygon" in drawn
    none = [{**row, **dict.fromkeys(keys[1:])} for row in slabs]
    assert "polygon" not in slab_figure("WSC", none, 0.9)
    assert words.percent(None) == "–"


def test_strips_say_which_side_of_the_target_a_group_is_on(evil_summary):
    page = render_report(evil_summary)
    table = re.search(r'<table id="levels">.*?</table>', page, re.S).group()
    strips = re.findall(r'<span class="strip(| below)" aria.*?<b style="left: (.*?)%">', table)
    rows = evil_summary["levels"]["rows"]
    assert [bool(below) for below, _ in strips] == [row["high"] < 0.9 for row in rows]
    places = [float(left) for _, left in strips]
    order = sorted(range(len(rows)), key=lambda i: rows[i]["coverage"])
    assert [places[i] for i in order] == sorted(places)
    assert min(places) >= 0
    assert max(places) <= 100


def test_cells_with_few_rows_get_no_colour():
    cell = {"n": 19, "coverage": 0.5, "inside": 1.0}
    assert heat_cell(cell, 0.9) == {"kind": "few", "tint": 0.0}
    assert heat_cell({**cell, "n": 20}, 0.9) == {"kind": "low member", "tint": 0.5}
    assert heat_cell({**cell, "n": 20, "coverage": 0.9, "inside": 0}, 0.9)["kind"] == "high"


def test_the_group_of_the_headline_is_not_called_the_worst_of_all(evil_summary):
    first = evil_summary["groups"][evil_summary["main_group"]]
    worse = {**first, "rule": "fewer rows", "coverage": first["coverage"] - 0.1, "n": 120}
    page = render_report({**evil_summary, "groups": [*evil_summary["groups"], worse]})
    assert "<dt>Verified group</dt>" in page
    assert "worst verified" not in page.lower()


def test_a_group_that_too_few_halves_proposed_has_no_p_value(evil_summary):
    first = evil_summary["groups"][evil_summary["main_group"]]
    few = {**first, "rule": "seldom", "n_found": 2, "adjusted_p_value": 1.0, "is_finding": False}
    page = render_report({**evil_summary, "groups": [*evil_summary["groups"], few]})
    row = page.split("seldom</th>")[1].split("</tr>")[0]
    assert '–<small class="why">proposed by 2 of 20 halves; 4 are needed</small>' in row
    assert "1.00" not in row
    enough = {**few, "n_found": 4}
    page = render_report({**evil_summary, "groups": [*evil_summary["groups"], enough]})
    assert "1.00" in page.split("seldom</th>")[1].split("</tr>")[0]


def test_tables_say_how_they_are_sorted_and_show_no_empty_column(evil_summary):
    page = render_report(evil_summary)
    assert "All audited rows, strongest evidence of low coverage first" in page
    assert "Top label right" not in page
    assert "With 20 permutations, 0.048 is the smallest possible p-value." in page
    told = [{**row, "top_label_right": 0.5} for row in evil_summary["table"]]
    assert "Top label right" in render_report({**evil_summary, "table": told})


def test_small_levels_are_left_out_and_counted(evil_summary):
    small = {**evil_summary["levels"]["rows"][0], "group": "tiny", "n": 9}
    rows = [*evil_summary["levels"]["rows"], small]
    levels = {"n_total": len(rows), "n_small": 1, "few_rows": 10, "rows": rows}
    page = render_report({**evil_summary, "levels": levels})
    table = re.search(r'<table id="levels">.*?</table>', page, re.S).group()
    assert table.count('scope="row"') == len(rows) - 1
    assert "tiny" not in table
    assert "Left out: 1 with fewer than 10 rows." in page
    assert '"tiny"' in page  # among the numbers


def test_small_pieces():
    assert tag("a", "<", class_="x", aria_label='"') == ('<a class="x" aria-label="&#34;">&lt;</a>')
    assert ticks(0.0, 1.0) == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
