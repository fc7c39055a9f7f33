"""Every line of a CSV file has a value for each column, or the file is refused with its number."""

import gzip

import numpy as np
import pandas as pd
import pytest

from fareg._validation import InvalidInputError
from fareg.workflow import fit_file, predict_file, read_table
from fareg.workflow._tables import copy_rows, read_batches

KINDS = {"a": "number", "b": "text"}
FORMS = ("whole", "batches", "kept", "copied")


def read(path, form):
    """Read a table in one of the ways in which commands do; return its values of b."""
    if form == "whole":
        return read_table(path, columns=["b"])["b"].tolist()
    if form == "copied":
        copy_rows(path, [0], path.with_name("copy.csv"))
        return pd.read_csv(path.with_name("copy.csv"))["b"].tolist()
    batches = list(read_batches(path, KINDS, 2, keep=["y"] if form == "kept" else []))
    return [value for batch, _ in batches for value in batch["b"]]


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
    with pytest.raises(InvalidInputError, match=told):
        read(path, form)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("rows", "values"),
    [
        ("1,u,x\n2,v,y", ["u", "v"]),  # the last line need not end
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


def test_a_line_of_separators_is_a_row_without_values(tmp_path):
    path = written(tmp_path, "a\tb\ty\n1\tu\tx\n\t\t\n", "csv")
    assert read_table(path)["y"].isna().tolist() == [False, True]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::fareg._validation.FaregWarning")
def test_commands_refuse_a_file_that_was_cut_and_write_nothing(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=200), "b": ["u", "v"] * 100, "c": 1.5})
    frame["y"] = np.where(frame["a"] > 0, "yes", "no")
    whole, cut, out = (tmp_path / name for name in ("whole.csv", "cut.csv", "out.csv"))
    frame.to_csv(whole, index=False)
    text = whole.read_text()
    cut.write_text(text[: text.rindex(",1.5")])
    fit_file(whole, target="y", out=tmp_path / "m.fareg", estimator="logistic")
    for command in (
        lambda: fit_file(cut, target="y", out=out, estimator="logistic"),
        lambda: predict_file(tmp_path / "m.fareg", cut, out, batch_size=50),
    ):
        with pytest.raises(InvalidInputError, match="2 values in line 201, but 4 columns"):
            command()
        assert not out.exists()
