"""What is written harms nothing that is read, whatever both are called."""

import os

import pytest

from fareg import FaregError
from fareg._files import check_outputs


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Stand in a folder with a table, links to it, and a folder of tables with a link to it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("a")
    (tmp_path / "soft.csv").symlink_to("t.csv")
    os.link("t.csv", "hard.csv")
    (tmp_path / "parts" / "deep").mkdir(parents=True)
    (tmp_path / "parts" / "p.parquet").write_text("a")
    (tmp_path / "linked").symlink_to("parts")
    (tmp_path / "into.csv").symlink_to("parts/new.csv")
    return tmp_path


SAME, INSIDE, AROUND = "is the same as {}, which is read too", "it lies in {}", "{}, .* lies in it"


@pytest.mark.parametrize(
    ("output", "source", "words"),
    [
        ("t.csv", "t.csv", SAME),
        ("./parts/../t.csv", "t.csv", SAME),
        ("soft.csv", "t.csv", SAME),
        ("t.csv", "soft.csv", SAME),
        ("hard.csv", "t.csv", SAME),
        ("hard.csv", "soft.csv", SAME),
        ("linked", "parts", SAME),
        ("parts/new.csv", "parts", INSIDE),
        ("parts/deep/new.csv", "linked", INSIDE),
        ("linked/new.csv", "parts", INSIDE),
        ("into.csv", "parts", INSIDE),
        ("parts", "parts/p.parquet", AROUND),
        ("parts", "linked/p.parquet", AROUND),
        (".", "t.csv", AROUND),
    ],
)
def test_an_output_that_would_harm_an_input_is_refused(place, output, source, words):
    with pytest.raises(FaregError, match=words.format(source)) as caught:
        check_outputs([None, output], inputs=[source, "other.csv", None])
    assert str(caught.value).startswith("cannot write")
    check_outputs([output])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("new.csv", "new.csv"),
        ("new.csv", "./new.csv"),
        ("t.csv", "soft.csv"),
        ("hard.csv", "t.csv"),
    ],
)
def test_two_outputs_are_two_files(place, one, other):
    with pytest.raises(FaregError, match="which is written too; choose another name"):
        check_outputs([one, None, other], inputs=["other.csv"])


def test_outputs_elsewhere_are_fine(place):
    inputs = ["t.csv", "soft.csv", "parts", "missing.csv"]
    check_outputs(["new.csv", "parts2/new.csv", "parts.csv", "no/where"], inputs=inputs)
    check_outputs(["out", "out/page.md"], inputs=inputs)  # a page may lie among the results
