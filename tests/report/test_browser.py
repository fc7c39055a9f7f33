"""The report in a real browser: it shows its numbers, sorts, filters and stays quiet."""

import json

import numpy as np
import pytest

from fareg.report import render_report

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def report(evil_summary, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(render_report(evil_summary), encoding="utf-8")
    return path


def column(chromium, table, position):
    script = f"""[...document.querySelectorAll('#{table} tbody tr')]
        .filter(row => !row.hidden).map(row => row.cells[{position}].dataset.value)"""
    return [float(value) for value in chromium.evaluate(script)]


def header(table, title):
    headers = f"[...document.querySelectorAll('#{table} th')]"
    return f"{headers}.find(h => h.innerText.startsWith('{title}'))"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [400, 1280])
def test_quiet_alone_and_no_wider_than_the_screen(chromium, report, width, dark):
    chromium.open(report, width=width, dark=dark)
    assert chromium.problems() == []
    assert chromium.requests() == [report.as_uri()]
    assert chromium.evaluate("document.documentElement.scrollWidth") <= width
    background = chromium.evaluate("getComputedStyle(document.body).backgroundColor")
    channels = [int(part) for part in background.strip("rgb()").split(",")]
    assert (sum(channels) / 3 < 128) == dark


def test_a_phone_shows_the_picture_and_the_coverage_without_scrolling(chromium, report):
    chromium.open(report, width=400)
    ends = chromium.evaluate(
        """[...document.querySelectorAll('.heat, .scroll td:nth-child(2)')]
            .filter(shown => shown.checkVisibility())
            .map(shown => shown.getBoundingClientRect().right)"""
    )
    assert ends
    assert max(ends) <= 400


def test_a_script_in_the_data_is_text(chromium, report, evil_summary):
    chromium.open(report)
    evil = "<script>alert(1)</script>"
    assert evil in chromium.evaluate("document.querySelector('#levels').innerText")
    assert evil in chromium.evaluate("document.querySelector('.verdict').innerText")
    assert chromium.evaluate("document.scripts.length") == 2
    opened = [e for e in chromium.events if e["method"] == "Page.javascriptDialogOpening"]
    assert opened == []


def test_embedded_numbers_are_those_shown(chromium, report, evil_summary):
    chromium.open(report)
    text = chromium.evaluate("document.getElementById('numbers').textContent")
    assert json.loads(text) == evil_summary
    for name in ("levels", "pairs"):
        rows = evil_summary[name]["rows"]
        assert column(chromium, name, 1) == [row["coverage"] for row in rows]
        assert column(chromium, name, 3) == [row["n"] for row in rows]
        shown = chromium.evaluate(
            f"""[...document.querySelectorAll('#{name} tbody tr')]
                .map(row => row.cells[1].firstChild.data)"""
        )
        assert shown == [f"{100 * row['coverage']:.1f}%" for row in rows]
    overall = chromium.evaluate(
        "document.querySelector('[data-number=\"overall.coverage\"]').innerText"
    )
    assert overall == f"{100 * evil_summary['overall']['coverage']:.1f}%"


def test_columns_sort_both_ways_by_mouse_and_keyboard(chromium, report):
    chromium.open(report)
    rows = f"{header('pairs', 'Rows')}"
    chromium.evaluate(f"{rows}.querySelector('.sort').click()")
    n = column(chromium, "pairs", 3)
    assert n == sorted(n)
    assert chromium.evaluate(f"{rows}.getAttribute('aria-sort')") == "ascending"
    chromium.evaluate(f"{rows}.querySelector('.sort').focus()")
    chromium.press("Enter", 13, "\r")
    n = column(chromium, "pairs", 3)
    assert n == sorted(n, reverse=True)
    assert chromium.evaluate(f"{rows}.getAttribute('aria-sort')") == "descending"
    assert chromium.evaluate("document.querySelectorAll('#pairs [aria-sort]').length") == 1
    chromium.evaluate(f"{header('pairs', 'Group')}.querySelector('.sort').click()")
    names = chromium.evaluate(
        "[...document.querySelectorAll('#pairs tbody th')].map(h => h.innerText)"
    )
    regions = [name for name in names if name.startswith("region=")]
    assert regions == sorted(regions)


def test_search_filters_rows_and_counts_them(chromium, report, evil_summary):
    chromium.open(report)
    chromium.evaluate("document.getElementById('pairs-search').focus()")
    chromium.type("north member")
    rows = evil_summary["pairs"]["rows"]
    kept = [row for row in rows if "north" in row["group"] and "member" in row["group"]]
    assert 0 < len(kept) < len(rows)
    assert column(chromium, "pairs", 1) == [row["coverage"] for row in kept]
    count = chromium.evaluate("document.querySelector('#pairs-search ~ .count').innerText")
    assert count == f"{len(kept)} of {len(rows)} rows"


def test_the_theme_button_overrules_the_system(chromium, report):
    chromium.open(report, dark=False)
    colour = "getComputedStyle(document.body).backgroundColor"
    light = chromium.evaluate(colour)
    chromium.evaluate("document.getElementById('theme').click()")
    assert chromium.evaluate(colour) != light
    assert chromium.evaluate("document.getElementById('theme').innerText") == "Light theme"
    chromium.evaluate("document.getElementById('theme').click()")
    assert chromium.evaluate(colour) == light


@pytest.mark.parametrize("dark", [False, True])
def test_text_has_enough_contrast(chromium, report, dark):
    """Every text reaches 4.5 to 1 (WCAG AA) against the background that it stands on."""
    chromium.open(report, dark=dark)
    pairs = chromium.evaluate(r"""(() => {
        const solid = (node) => {
            for (; node; node = node.parentElement) {
                const colour = getComputedStyle(node).backgroundColor;
                if (!/^rgba.* 0\)$/.test(colour)) return colour;
            }
        };
        const found = new Map();
        for (const node of document.querySelectorAll('main *, header *, footer *')) {
            const own = [...node.childNodes].some(c => c.nodeType === 3 && c.data.trim());
            if (!own || node.closest('svg') || node.closest('.arrow')) continue;
            const pair = [getComputedStyle(node).color, solid(node)];
            found.set(pair.join(), [...pair, node.outerHTML.slice(0, 80)]);
        }
        return [...found.values()];
    })()""")
    assert pairs
    for ink, paper, where in pairs:
        assert contrast(ink, paper) >= 4.5, (ink, paper, where)


def contrast(first, second):
    low, high = sorted(map(luminance, (first, second)))
    return (high + 0.05) / (low + 0.05)


def luminance(colour):
    channels = np.array([float(part) for part in colour.strip("rgba()").split(",")[:3]]) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def test_print_shows_everything_and_no_controls(chromium, report):
    chromium.open(report)
    chromium.call("Emulation.setEmulatedMedia", media="print")
    try:
        assert (
            chromium.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
        )
        scroll = "getComputedStyle(document.querySelector('#pairs').parentElement).overflowY"
        assert chromium.evaluate(scroll) == "visible"
        chromium.call(
            "Emulation.setDeviceMetricsOverride",
            width=720,  # about the paper between its margins
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        wide = """[...document.querySelectorAll('table, svg.figure')]
            .filter(drawn => drawn.getBoundingClientRect().right > innerWidth).length"""
        assert chromium.evaluate(wide) == 0
    finally:
        chromium.call("Emulation.setEmulatedMedia", media="")
