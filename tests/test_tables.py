"""A table means the same in CSV and in Parquet: kinds of columns, and words that name classes."""

import datetime
import gzip

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from fareg._validation import FaregWarning, InvalidInputError
from fareg.workflow import audit_file, fit_file, predict_file
from fareg.workflow._tables import (
    column_kinds,
    copy_rows,
    read_batches,
    read_table,
    table_columns,
)


@pytest.fixture
def days(tmp_path):
    """The same rows in both formats; days are of Parquet's own type for them."""
    rng = np.random.default_rng(0)
    start = datetime.date(2020, 1, 1)
    day = [start + datetime.timedelta(int(n)) for n in rng.integers(900, size=300)]
    late = np.array([d.year > 2020 for d in day])
    frame = pd.DataFrame({"day": day, "y": np.where(late ^ (rng.random(300) < 0.2), "a", "b")})
    frame.loc[5, "day"] = None
    table = pa.Table.from_pandas(frame, preserve_index=False)
    assert table.schema.field("day").type == pa.date32()
    pa.parquet.write_table(table, tmp_path / "days.parquet")
    frame.to_csv(tmp_path / "days.csv", index=False)
    return tmp_path


def test_days_have_one_kind_in_csv_and_parquet(days):
    kinds = {"day": "date", "y": "text"}
    for name in ("days.csv", "days.parquet"):
        assert column_kinds(read_table(days / name)) == kinds
        ((batch, _),) = read_batches(days / name, kinds, 1000)
        assert column_kinds(batch) == kinds


@pytest.mark.filterwarnings("ignore::fareg._validation.FaregWarning")
def test_a_model_of_days_answers_alike_from_csv_and_parquet(days):
    model = days / "m.fareg"
    fit_file(days / "days.parquet", target="y", out=model, estimator="logistic")
    answers = []
    for name in ("days.csv", "days.parquet"):
        predict_file(model, days / name, days / "out.csv")
        answers.append(pd.read_csv(days / "out.csv"))
    pd.testing.assert_frame_equal(*answers)


@pytest.fixture
def drugs(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=200)
    y = np.where(x > 0, "None", ">30").astype(object)
    y[:20] = "NA"
    frame = pd.DataFrame({"x": x, "z": rng.normal(size=200), "y": y})
    frame.to_csv(tmp_path / "drugs.csv", index=False)
    return tmp_path / "drugs.csv"


@pytest.mark.filterwarnings("ignore::fareg._validation.FaregWarning")
def test_words_for_missing_are_classes_of_a_target(drugs, tmp_path):
    model, answers, new = (tmp_path / name for name in ("m.fareg", "p.csv", "test.csv"))
    trial = fit_file(drugs, target="y", out=model, estimator="logistic", test_out=new)
    assert sorted(trial.clf.classes_) == [">30", "NA", "None"]
    predict_file(model, new, answers, keep=["y", "z"])
    assert (pd.read_csv(answers, keep_default_na=False)["set"] == '["None"]').any()
    # the sets are the same, asked from the model or read from the file
    from_file = audit_file(answers, target="y", sets=["set"], sensitive=["z"])
    from_model = audit_file(new, target="y", model=model)
    assert from_file.coverage == from_model.coverage


def test_words_taken_as_labels_are_told(drugs):
    with pytest.warns(FaregWarning, match=r"y holds (NA or None|None or NA) in .* of 200 rows"):
        read_table(drugs, labels=["y"])
    assert read_table(drugs)["y"].isna().any()  # in any other column they are missing values


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("values", [[0, 1, "NA"], ["a", "b", ""], ["a", "b", "NaN"]])
def test_missing_labels_stay_missing(values, tmp_path):
    path = tmp_path / "t.csv"
    pd.DataFrame({"x": range(30), "y": values * 10}).to_csv(path, index=False)
    with pytest.raises(InvalidInputError, match="the target y has 10 missing values in 30 rows"):
        fit_file(path, target="y", out=tmp_path / "m.fareg")


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("sign", [",", ";", "\t"])
@pytest.mark.parametrize("ending", ["csv", "csv.gz", "CSV.GZ"])
@pytest.mark.filterwarnings("ignore:column y holds NA")
def test_a_table_is_the_same_whatever_separates_its_columns(sign, mark, ending, tmp_path):
    frame = pd.DataFrame(
        {"size, in m": [1.5, 2], "x;y": ["a;b", None], "t\tu": ["1,5", "2"], "y": ["NA", "b"]}
    )
    path = tmp_path / f"t.{ending}"
    frame.to_csv(path, index=False, sep=sign, encoding="utf-8-sig" if mark else "utf-8")
    assert table_columns(path) == list(frame)
    read = read_table(path, labels=["y"])
    pd.testing.assert_frame_equal(read, frame, check_dtype=False, check_categorical=False)
    kinds = {"size, in m": "number", "x;y": "text"}
    ((batch, kept),) = read_batches(path, kinds, 10, keep=["t\tu", "y"])
    assert batch["size, in m"].tolist() == [1.5, 2]
    assert kept.to_numpy().tolist() == [["1,5", "NA"], ["2", "b"]]
    copy = tmp_path / f"copy.{ending}"
    copy_rows(path, [1], copy)
    opened = open if ending == "csv" else gzip.open
    with opened(copy, "rt", encoding="utf-8") as file:
        assert file.read().splitlines()[1] == "2.0,,2,b"


@pytest.mark.parametrize(
    ("written", "is_code"),
    [
        (["04109", "60311"], True),
        ([" 04109", "60311"], True),
        (["000", "123"], True),
        (["0", " 1"], False),
        (["0.0", "1.0"], False),
        (["0.5", "01.5"], False),
    ],
)
def test_whole_numbers_with_a_leading_zero_are_codes(written, is_code, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("x,y\n" + "".join(f"{code},a\n" for code in written))
    for labels in ([], ["x"]):
        column = read_table(path, labels=labels)["x"]
        assert column.tolist() == (written if is_code else [float(code) for code in written])


def test_all_words_that_are_taken_as_labels_are_told(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("x,y\n1,NA\n2,None\n3,yes\n4,NA\n")
    with pytest.warns(FaregWarning, match="column y holds NA or None in 3 of 4 rows, taken as"):
        assert read_table(path, labels=["y"])["y"].tolist() == ["NA", "None", "yes", "NA"]


def test_lines_that_end_in_a_separator_are_read_and_copied_alike(tmp_path):
    source, out = tmp_path / "t.csv", tmp_path / "out.csv"
    source.write_text("a,b,y\n1,2,u,\n3,4,NA,\n5,6,v,\n")
    with pytest.warns(FaregWarning, match="column y holds NA in 1 of 3 rows, taken as a label"):
        table = read_table(source, labels=["y"])
    assert table["y"].tolist() == ["u", "NA", "v"]
    copy_rows(source, [0, 2], out)
    assert out.read_text().split() == ["a,b,y", "1,2,u", "5,6,v"]
