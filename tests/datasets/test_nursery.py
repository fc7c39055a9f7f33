"""Nursery: byte for byte the UCI file, and the paper's version of it."""

import hashlib

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fareg.datasets import load_nursery, make_nursery_experiment


def test_rows_are_those_of_the_uci_file():
    data = load_nursery()
    rows = data.X.assign(label=data.y).itertuples(index=False)
    text = "".join(",".join(row) + "\n" for row in rows)
    assert (
        hashlib.sha256(text.encode()).hexdigest()
        == "1f2ff809b36c4524f8619d9cf0952e9937ff9e281eab7b2784acf604b45df879"
    )


@pytest.mark.parametrize("data", [load_nursery(), make_nursery_experiment(random_state=0)])
def test_group_is_the_rule_on_x(data):
    rows = zip(data.X["finance"], data.X["parents"], strict=True)
    expected = [f == "inconv" and p in {"usual", "pretentious"} for f, p in rows]
    assert data.group.tolist() == expected
    assert set(data.X.columns) - set(data.sensitive) == {"housing"}


def test_experiment_codes_are_alphabetical_and_its_noise_stays_in_the_group():
    clean, full = make_nursery_experiment(label_noise=False), load_nursery()
    names = np.array(["not_recom", "priority", "spec_prior", "very_recom"])
    assert_array_equal(names[clean.y], full.y[full.y != "recommend"])
    assert len(clean) == 12_958
    noisy = make_nursery_experiment(random_state=0)
    assert_array_equal(noisy.y[~noisy.group], clean.y[~clean.group])
    # of eight units of noise, one keeps an inner label; an outer one is also kept by clipping
    keeps = np.array([4.5, 1, 1, 4.5]) / 8
    expected = keeps[clean.y[clean.group]].mean()
    n = clean.group.sum()
    assert (noisy.y == clean.y)[noisy.group].mean() == pytest.approx(
        expected, abs=5 * np.sqrt(0.25 / n)
    )
