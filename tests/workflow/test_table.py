"""The same table in CSV, gzip, Parquet, folders; read whole, as a sample, in batches."""

import gzip
from collections import Counter
from itertools import combinations
from math import comb

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from scipy.stats import chisquare

from fareg import FaregError, FaregWarning
from fareg._rows import hash_key
from fareg.workflow import Table, read_table
from fareg.workflow._table import draw_rows
from fareg.workflow._values import column_kinds

KINDS = {"a": "number", "b": "text"}
FORMS = ("whole", "batches", "kept", "copied")
FRAME = pd.DataFrame(
    {
        "number": np.arange(600),
        "share": np.arange(600) / 7,
        "code": [f"{n % 90:03}" for n in range(600)],
        "flag": np.arange(600) % 3 == 0,
        "day": pd.Timestamp("2020-02-28") + pd.to_timedelta(np.arange(600) % 50, "D"),
        "y": np.array(["a", "b", "a|b"])[np.arange(600) % 3],
        "color": np.array(["Red", "Blue"])[np.arange(600) % 2],
    }
)
HELD = {"number": "number", "share": "number", "code": "text", "flag": "text", "day": "date"}
HELD |= {"y": "text", "color": "text"}


def batches(path, *arguments, **options):
    with Table(path) as table:
        yield from table.batches(*arguments, **options)


def as_texts(column):
    return column.map(lambda value: str(value).removesuffix("+00:00")).tolist()


def write_parts(folder, frame=FRAME, **options):
    """Write parts in folders by colour; rows keep their number."""
    for color, rows in frame.groupby("color"):
        (folder / f"color={color}").mkdir(parents=True)
        for part, piece in enumerate(np.array_split(np.arange(len(rows)), 3)):
            path = folder / f"color={color}" / f"part-{part}.parquet"
            rows.iloc[piece].drop(columns="color").to_parquet(path, row_group_size=50, **options)
    return folder


@pytest.fixture(scope="module")
def held(tmp_path_factory):
    """Return a folder with the same rows in all formats, by their names."""
    folder = tmp_path_factory.mktemp("held")
    ordered = FRAME.sort_values("color", kind="stable").reset_index(drop=True)
    for sign, name in ((",", "t.csv"), (";", "t.csv.gz"), ("\t", "t.txt")):
        ordered.to_csv(folder / name, index=False, sep=sign, encoding="utf-8-sig")
    ordered.to_parquet(folder / "t.parquet")
    write_parts(folder / "parts")
    return folder


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.txt", "t.parquet", "parts"])
def test_rows_and_kinds_are_the_same_in_every_form(held, name):
    whole, source = read_table(held / "t.parquet", labels=["y"]), held / name
    with Table(source) as table:
        assert sorted(table.names) == sorted(FRAME)
        read = table.read(labels=["y"])
        assert column_kinds(read) == {n: HELD[n] for n in read}
        for column in FRAME:
            assert as_texts(read[column]) == as_texts(whole[column]), column
        some = table.read(["number", "color"], max_rows=100, seed=3)
        rows = list(table.batches(HELD, 97, keep=["y"]))
    assert list(some) == ["number", "color"]
    assert some["number"].tolist() == read["number"][some.index].tolist()
    pd.testing.assert_series_equal(
        pd.concat([batch["share"] for batch, _ in rows]), read["share"], check_index=False
    )
    assert [label for _, kept in rows for label in kept["y"]] == read["y"].tolist()


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("name", ["t.csv.gz", "t.parquet", "parts"])
def test_copied_rows_are_those_of_the_source(held, name, ending, tmp_path):
    out, rows = tmp_path / f"copy.{ending}", [599, 3, 90]
    with Table(held / name) as table:
        expected = table.read(labels=["y"]).iloc[sorted(rows)]
        table.copy(rows, out, labels=["y"], kinds=HELD)
    copy = read_table(out, labels=["y"], kinds=HELD)
    for column in FRAME:
        assert as_texts(copy[column]) == as_texts(expected[column]), column


# --- CSV: every line has a value for each column, or is refused with its number ---


def read(path, form):
    """Read a table in one of the ways of the commands; return its values of b."""
    if form == "whole":
        return read_table(path, columns=["b"])["b"].tolist()
    if form == "copied":
        with Table(path) as table:
            table.copy([0], path.with_name("copy.csv"))
        return pd.read_csv(path.with_name("copy.csv"))["b"].tolist()
    found = batches(path, KINDS, 2, keep=["y"] if form == "kept" else [])
    return [value for batch, _ in found for value in batch["b"]]


def written(folder, text, ending="csv"):
    path = folder / f"t.{ending}"
    content = text.encode()
    path.write_bytes(gzip.compress(content) if ending.endswith("gz") else content)
    return path


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ("1,u,x\n2,v\n3,w,z\n", "2 values in line 3, but 3 columns; repair that line"),
        ("1,u,x\n2,v,y\n3\n", "1 value in line 4, but 3 columns; repair that line"),
        ("1,u,x\n2,v,y\n3,w", "2 values in line 4, but 3 columns; the file ends there"),
        ("1,u,x\r\n2,v\r\n", "2 values in line 3, but 3 columns; repair that line"),
        ("1,u,x\n\n2,v\n", "2 values in line 4, but 3 columns; repair that line"),
        ('1,"u\nu",x\n2,v\n', "2 values in line 4, but 3 columns; repair that line"),
        ('1,u,x\n2,"v,v"\n', "2 values in line 3, but 3 columns; repair that line"),
        ('1,u,x\n2,v,y\n3,"w', "quotation mark in line 4 that is not closed"),
        ('1,u,x\n2,"v\n3,w,z\n4,w,z\n', "quotation mark in line 3 that is not closed"),
        ("1,u,x\n2,v,y\n3,w,z,z\n", "4 values in line 4, but 3 columns; repair that line"),
        ("1,u,x,\n2,v,y,z\n", "4 values in line 3, but 3 columns; repair that line"),
    ],
)
def test_a_line_without_a_value_per_column_is_refused(rows, told, ending, form, tmp_path):
    path = written(tmp_path, "a,b,y\n" + rows, ending)
    with pytest.raises(FaregError, match=told):
        read(path, form)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("rows", "values"),
    [
        ("1,u,x\n2,v,y", ["u", "v"]),  # the last line need not end
        ("1,u,x\r2,v,y\r", ["u", "v"]),
        ("1,u,x\n2,v,y\n\n  \n\n", ["u", "v"]),
        ("1,u,x\n\n2,v,y\n", ["u", "v"]),
        ('1,"u\n\nu",x\n2,"v,""v""",y\n', ["u\n\nu", 'v,"v"']),
        ('1,5" disk,x\n2,v,y\n', ['5" disk', "v"]),  # a mark within a value is one of its signs
        ("1,u,x\n2,v,\n3,w,\n", ["u", "v", "w"]),
        ("1,u,x,\n2,v,y\n", ["u", "v"]),
        (f'1,"{"u" * 200_000}",x\n', ["u" * 200_000]),
    ],
)
def test_lines_with_all_their_values_are_read(rows, values, form, tmp_path):
    path = written(tmp_path, "a,b,y\n" + rows)
    assert read(path, form) == (values[:1] if form == "copied" else values)


# --- texts become values in one place ---


@pytest.mark.parametrize(
    ("texts", "values"),
    [
        (["04109", "60311"], ["04109", "60311"]),
        ([" 04109", "60311"], [" 04109", "60311"]),
        (["000", "123"], ["000", "123"]),
        (["0", " 1"], [0, 1]),
        (["+1", "-0"], [1, 0]),
        (["0.0", "1.0"], [0.0, 1.0]),
        (["0.5", "01.5"], [0.5, 1.5]),
        (["1e3", "inf"], [1000.0, np.inf]),
        (["12345678901234567890", "1"], [12345678901234567890.0, 1.0]),
        (["1,5", "2"], ["1,5", "2"]),
        (["TRUE", "false"], [True, False]),
        (["true", "x"], ["True", "x"]),
        (
            ["2020-02-29", "2020-01-01 12:00"],
            [pd.Timestamp(2020, 2, 29), pd.Timestamp(2020, 1, 1, 12)],
        ),
        (["2020-02-30", "2020-01-01"], ["2020-02-30", "2020-01-01"]),
    ],
)
def test_texts_are_numbers_dates_flags_or_categories(texts, values, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("x,y\n" + "".join(f'"{text}",a\n' for text in texts))
    column = read_table(path)["x"]
    if column.dtype.kind == "M":
        column = column.dt.tz_localize(None)
    assert column.tolist() == values
    label = read_table(path, labels=["x"])["x"]
    assert label.tolist() == texts if isinstance(values[0], str) else values
    assert read_table(path, kinds={"x": "text"})["x"].map(str).str.lower().tolist() == [
        text.lower() for text in texts
    ]


def test_only_an_empty_label_is_missing_and_words_taken_as_labels_are_told(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("x,y\n1,NA\n2,None\n3,yes\n4,\n")
    with pytest.warns(FaregWarning, match=r"column y holds NA or None in 2 of 4 rows, taken as a"):
        labels = read_table(path, labels=["y"])["y"]
    assert labels[:3].tolist() == ["NA", "None", "yes"]
    assert labels.isna().tolist() == [False, False, False, True]
    assert read_table(path)["y"].isna().tolist() == [True, False, False, True]  # None may be a name
    path.write_text("x,y\n1,NA\n2,None\n3,4\n4,\n")
    assert read_table(path)["y"].isna().tolist() == [True, True, False, True]
    path.write_text("x,y\n1,0\n2,\n3,1\n")
    assert read_table(path, labels=["y"])["y"].tolist()[::2] == [0, 1]


def test_a_column_of_another_kind_than_in_fit_is_refused_with_an_example(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,u\ntall,v\n")
    with pytest.raises(
        FaregError, match=r"held numbers when .* here it holds texts such as 'tall'"
    ):
        list(batches(path, KINDS, 10))


# --- samples ---


def test_every_set_of_rows_is_as_probable_as_any_other():
    for n_wanted in (2, 4):  # fewer and more than half
        drawn = Counter(tuple(draw_rows(6, n_wanted, seed)) for seed in range(600))
        assert set(drawn) == set(combinations(range(6), n_wanted))
        assert chisquare(list(drawn.values())).pvalue > 1e-3
        assert len(drawn) == comb(6, n_wanted)


@pytest.mark.parametrize(("n_rows", "n_wanted"), [(10**12, 1000), (50, 50), (50, 80), (50, 49)])
def test_drawn_rows_are_distinct_and_in_order(n_rows, n_wanted):
    rows = draw_rows(n_rows, n_wanted, 0)
    assert len(rows) == min(n_rows, n_wanted)
    assert (np.diff(rows) > 0).all()
    assert 0 <= rows[0] <= rows[-1] < n_rows


def test_samples_with_one_seed_for_fit_and_audit_are_independent():
    common = 0
    for seed in range(20):
        rows = draw_rows(50_000, 5000, hash_key(seed))
        common += len(np.intersect1d(rows, draw_rows(50_000, 8000, seed)))
    assert abs(common / 20 - 800) < 5 * np.sqrt(800 * 0.84 * 0.9 / 20)  # hypergeometric


@pytest.mark.parametrize("name", ["t.csv.gz", "t.parquet", "parts"])
def test_a_sample_is_told_and_no_other_column_is_decoded(held, name, monkeypatch):
    asked, original = [], Table._frame

    def spy(self, table, *arguments, **options):
        asked.append(table.column_names)
        return original(self, table, *arguments, **options)

    monkeypatch.setattr(Table, "_frame", spy)
    with pytest.warns(FaregWarning, match="has 600 rows: 100 were drawn at random"):
        some = read_table(held / name, columns=["color", "number"], max_rows=100, seed=3)
    assert len(some) == 100
    assert asked == [["color", "number"]]


# --- folders ---


def test_parts_need_not_agree_on_types_that_mean_the_same(tmp_path):
    pieces = [
        pa.table({"n": [1, 2], "t": ["a", "b"]}),
        pa.table({"n": [0.5, None], "t": pa.array([None, None])}),
        pa.table({"n": pa.array([7], pa.int8()), "t": pa.array(["c"]).dictionary_encode()}),
    ]
    for number, piece in enumerate(pieces):
        pyarrow.parquet.write_table(piece, tmp_path / f"{number}.parquet")
    frame = read_table(tmp_path)
    assert frame["n"].tolist()[:3] == [1, 2, 0.5]
    assert frame["t"].dropna().tolist() == ["a", "b", "c"]
    pyarrow.parquet.write_table(pa.table({"n": ["x"], "t": ["c"]}), tmp_path / "3.parquet")
    with pytest.raises(FaregError, match="hold columns of different types"):
        read_table(tmp_path)


@pytest.mark.parametrize(
    ("names", "values"),
    [
        (["1", "2.5"], [1.0, 2.5]),
        (["01", "10"], ["01", "10"]),
        (["false", "true"], [False, True]),
        (["__HIVE_DEFAULT_PARTITION__", "a%20b"], [np.nan, "a b"]),
    ],
)
def test_names_of_folders_are_values(names, values, tmp_path):
    for name in names:
        (tmp_path / f"v={name}").mkdir()
        FRAME[["share"]][:1].to_parquet(tmp_path / f"v={name}" / "0.parquet")
    assert read_table(tmp_path)["v"].map(str, na_action=None).tolist() == list(map(str, values))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda place: FRAME.to_parquet(place / "color=Red" / "x.parquet"), "column color stands"),
        (lambda place: (place / "notes.txt").write_text("x"), "must hold Parquet files only"),
        (lambda place: (place / "color=Red" / "part-0.parquet").write_bytes(b"PAR1"), "damaged"),
    ],
)
def test_a_folder_of_other_things_is_refused(change, words, tmp_path):
    change(write_parts(tmp_path / "parts"))
    with pytest.raises(FaregError, match=words):
        read_table(tmp_path / "parts")


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "parts"])
def test_a_table_without_rows_is_told_as_such(name, tmp_path):
    (tmp_path / "parts").mkdir()
    FRAME[:0].to_csv(tmp_path / "t.csv", index=False)
    FRAME[:0].to_parquet(tmp_path / "t.parquet")
    FRAME[:0].to_parquet(tmp_path / "parts" / "0.parquet")
    with pytest.raises(FaregError, match="has no rows"):
        read_table(tmp_path / name)
