"""Which rows teach, and what they teach: how badly people are covered."""

import numpy as np
import pandas as pd
import pytest

from fareg import FaregWarning
from fareg.calibration import Batch, Labelled
from fareg.classifiers._fareg import shortfall
from fareg.classifiers._models import MAX_LEARNING_ROWS, divide_rows
from fareg.scores import aps, lac


def clustered(sizes):
    """Return rows whose score is their number, of clusters with these sizes."""
    number = np.arange(sum(sizes), dtype=float)
    clusters = np.repeat(np.arange(len(sizes)), sizes)
    people = pd.DataFrame(index=range(len(number)))
    return Labelled(people, number, np.zeros(len(number), int), 2, number, number, clusters)


def labelled(proba, y, score=lac):
    """Return rows with these probabilities and labels, -1 for one that the model does not know."""
    proba, y = np.asarray(proba, dtype=float), np.asarray(y)
    u = np.random.default_rng(0).random(len(y))
    people = pd.DataFrame(index=range(len(y)))
    return Batch(people, proba, score(proba, u), u).labelled(y)


@pytest.mark.parametrize("sizes", [[20] * 10, [7] * 41, [300, *[1] * 30]])
def test_clusters_are_divided_whole_and_in_random_order(sizes):
    rows = clustered(sizes)
    parts = divide_rows(rows, None, "split", 0, "look for a group")
    numbers = [part.score for part in parts]
    np.testing.assert_array_equal(np.sort(np.concatenate(numbers)), np.arange(len(rows)))
    ids = [set(part.clusters) for part in parts]
    assert not ids[0] & ids[1]
    assert len(ids[0]) == len(sizes) // 2
    for own in numbers:
        assert abs(np.corrcoef(own, np.arange(len(own)))[0, 1]) < 4 / len(own) ** 0.5


def test_many_rows_of_few_clusters_are_told_the_true_cause():
    with pytest.warns(FaregWarning, match="3 clusters of calibration rows are too few") as caught:
        learning, rest = divide_rows(clustered([70_000] * 3), None, "split", 0, "look for a group")
    assert (len(learning), len(rest), len(caught)) == (0, 210_000, 1)
    learning, rest = divide_rows(clustered([20_000] * 12), None, "split", 0, "look for a group")
    assert len(learning) == MAX_LEARNING_ROWS
    assert len(set(learning.clusters)) == 5
    assert len(rest) == 140_000


def test_the_shortfall_has_a_mean_of_its_own_exactly_where_probabilities_are_false():
    rng = np.random.default_rng(0)
    n, alpha = 4000, 0.1
    proba = rng.dirichlet([0.5, 1.0, 2.0], size=n)
    true = (rng.random((n, 1)) > proba.cumsum(axis=1)[:, :-1]).sum(axis=1)

    def above_zero_surprise(told):
        """Return in standard errors how much worse rows are off than the model expects."""
        missed = shortfall(labelled(told, true), alpha, adaptive=True, label_conditional=False)
        gap = missed - 0.25 / 1.25
        return gap.mean() / gap.std() * np.sqrt(n)

    sharper = proba**2 / (proba**2).sum(axis=1, keepdims=True)
    assert abs(above_zero_surprise(proba)) < 3
    assert above_zero_surprise(sharper) > 6


def test_people_of_whom_the_model_is_rightly_sure_are_no_more_disadvantaged_than_others():
    rng = np.random.default_rng(0)
    n = 4000
    sure = np.arange(n) < n // 2
    p = np.where(sure, 0.98, rng.uniform(0.5, 0.8, n))
    wrong = rng.random(n) > p
    rows = labelled(np.column_stack([p, 1 - p]), wrong * 1, aps)
    missed = shortfall(rows, 0.1, adaptive=True, label_conditional=False)
    difference = missed[sure].mean() - missed[~sure].mean()
    spread = np.hypot(*(missed[part].std() for part in (sure, ~sure))) / (n / 2) ** 0.5
    assert abs(difference) < 3 * spread


@pytest.mark.parametrize("label_conditional", [False, True])
def test_the_shortfall_is_the_share_of_confidence_levels_that_miss(label_conditional):
    """By counting: split conformal sets at many levels between 0.5 and 1, of the very rows."""
    rng = np.random.default_rng(1)
    rows = labelled(rng.dirichlet([1, 1], 300), rng.integers(0, 2, 300))
    missed = shortfall(rows, 0.1, adaptive=False, label_conditional=label_conditional)
    for k in (0, 1) if label_conditional else (None,):
        alike = np.arange(300) if k is None else np.flatnonzero(rows.y == k)
        score = rows.score[alike]
        rank = (score[:, None] >= score).sum(axis=1) / (len(score) + 1)
        levels = np.linspace(0.5, 1, 20_001)
        counted = (levels < rank[:, None]).mean(axis=1)
        np.testing.assert_allclose(missed[alike], counted, atol=1e-3)


@pytest.mark.parametrize("label_conditional", [False, True])
@pytest.mark.parametrize("adaptive", [False, True])
def test_labels_that_no_set_holds_are_never_covered(label_conditional, adaptive):
    rows = labelled(np.tile([0.9, 0.1], (4, 1)), [0, 1, -1, -1])
    missed = shortfall(rows, 0.1, adaptive=adaptive, label_conditional=label_conditional)
    assert missed[2:].tolist() == [1, 1]
    assert 0 <= missed[0] < 1
