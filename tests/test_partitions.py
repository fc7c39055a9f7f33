"""Folders that are named after a value are a column, of numbers and flags too."""

import pandas as pd
import pytest

from fareg import FaregError
from fareg.datasets import make_synthetic
from fareg.workflow import fit_file, predict_file, predict_folder, read_table
from fareg.workflow._tables import column_kinds

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::fareg._validation.FaregWarning"),
]
DATA = make_synthetic(1200, random_state=0)
FRAME = DATA.X[["Color", "Feature 1"]].assign(smoker=DATA.X["Gender"] == "Male", outcome=DATA.y)


def by_smoker(folder, words):
    for flag, rows in FRAME.groupby("smoker"):
        place = folder / f"smoker={words[flag]}"
        place.mkdir(parents=True)
        rows.drop(columns="smoker").to_parquet(place / "0.parquet")
    return folder


@pytest.mark.parametrize("words", [("false", "true"), ("False", "True")])
def test_folders_of_flags_are_those_of_one_file(words, tmp_path):
    whole = FRAME.sort_values("smoker", kind="stable").reset_index(drop=True)
    whole.to_parquet(tmp_path / "whole.parquet")
    folder = by_smoker(tmp_path / "parts", words)
    assert column_kinds(read_table(folder)) == {**column_kinds(whole), "smoker": "text"}
    answers = []
    for name in ("whole.parquet", "parts"):  # a model of either answers to both
        model = tmp_path / "m.fareg"
        fit_file(tmp_path / name, target="outcome", out=model, estimator="logistic")
        predict_file(model, tmp_path / "whole.parquet", tmp_path / "sets.parquet")
        out = tmp_path / f"sets of {name}"
        predict_folder(model, folder, out, jobs=1)
        parts = [
            pd.read_parquet(path, partitioning=None) for path in sorted(out.rglob("*.parquet"))
        ]
        answers += [pd.read_parquet(tmp_path / "sets.parquet"), pd.concat(parts)]
    for other in answers[1:]:
        assert other["set"].tolist() == answers[0]["set"].tolist()


def test_folders_with_other_words_than_numbers_are_told_as_texts(tmp_path):
    FRAME.to_parquet(tmp_path / "whole.parquet")
    model = tmp_path / "m.fareg"
    fit_file(tmp_path / "whole.parquet", target="outcome", out=model, estimator="logistic")
    folder = by_smoker(tmp_path / "parts", ("no", "yes"))
    with pytest.raises(FaregError, match=r"smoker: 100\.0% of 1,200 rows hold a value that fit"):
        predict_folder(model, folder, tmp_path / "sets", jobs=1)


def test_a_column_in_the_files_and_in_the_names_of_folders_is_refused(tmp_path):
    FRAME.to_parquet(tmp_path / "whole.parquet")
    model = tmp_path / "m.fareg"
    fit_file(tmp_path / "whole.parquet", target="outcome", out=model, estimator="logistic")
    place = tmp_path / "parts" / "Color=Green"
    place.mkdir(parents=True)
    FRAME.to_parquet(place / "0.parquet")
    told = "column Color stands both in .* and in the name of its folder; rename"
    with pytest.raises(FaregError, match=told):
        predict_folder(model, tmp_path / "parts", tmp_path / "sets", jobs=1)
    with pytest.raises(FaregError, match=told):
        fit_file(tmp_path / "parts", target="outcome", out=tmp_path / "n.fareg")
    assert not (tmp_path / "sets").exists()
    assert not (tmp_path / "n.fareg").exists()
