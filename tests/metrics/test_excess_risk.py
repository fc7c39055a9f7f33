import numpy as np
import pandas as pd
import polars as pl
import pytest
from covmetrics import ERT, losses
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from fareg._validation import InvalidInputError
from fareg.metrics import excess_risk, excess_risk_parts

LOSSES = ("l1", "brier", "log")
THEIRS = {"l1": "L1_miscoverage", "brier": "brier_score", "log": "logloss"}
ENDINGS = {"total": "", "under": "_under", "over": "_over"}
SMALL = HistGradientBoostingClassifier(max_iter=10, random_state=0)


def make(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n, 3))
    return X, rng.random(n) < np.where(X[:, 0] < 0.5, 0.8, 1.0)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("part", ENDINGS)
def test_equals_covmetrics(loss, part):
    X, covered = make(300)
    their_loss = getattr(losses, THEIRS[loss] + ENDINGS[part])
    theirs = ERT(HistGradientBoostingClassifier, max_iter=20, random_state=0).evaluate(
        X, covered.astype(float), 0.1, n_splits=3, random_state=11, loss=their_loss
    )
    booster = HistGradientBoostingClassifier(max_iter=20, random_state=0)
    ours = excess_risk(
        X, covered, loss=loss, part=part, estimator=booster, n_splits=3, random_state=11
    )
    assert ours == pytest.approx(theirs, abs=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_parts_add_up_to_the_total(loss):
    X, covered = make(300, seed=4)
    parts = excess_risk_parts(X, covered, loss=loss, estimator=SMALL)
    assert parts.under + parts.over == pytest.approx(parts.total, abs=1e-12)
    for part in ("total", "under", "over"):
        alone = excess_risk(X, covered, loss=loss, part=part, estimator=SMALL)
        assert alone == getattr(parts, part)


@pytest.mark.parametrize(("loss", "under", "over"), [("l1", 0.1, 0.05), ("brier", 0.02, 0.005)])
def test_parts_measure_who_lacks_and_who_has_more(loss, under, over):
    rng = np.random.default_rng(0)
    X = rng.random((20_000, 2))
    covered = rng.random(20_000) < np.where(X[:, 0] < 0.5, 0.7, 1.0)
    stump = DecisionTreeClassifier(max_depth=1)
    parts = excess_risk_parts(X, covered, loss=loss, estimator=stump)
    assert parts.under == pytest.approx(under, rel=0.1)
    assert parts.over == pytest.approx(over, rel=0.1)


def test_is_not_positive_if_coverage_is_fair():
    rng = np.random.default_rng(0)
    X, covered = rng.random((5000, 3)), rng.random(5000) < 0.9
    for loss in LOSSES:
        assert excess_risk(X, covered, loss=loss, estimator=LogisticRegression()) < 0.003


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("outcome", [0, 1])
def test_a_single_outcome_has_an_answer(loss, outcome):
    X, _ = make(20)
    level = {"l1": abs(outcome - 0.9), "brier": (outcome - 0.9) ** 2}
    found = excess_risk(X, np.full(20, outcome), loss=loss)
    assert found == pytest.approx(level.get(loss, -np.log(0.9 if outcome else 0.1)), abs=1e-5)


def test_frames_with_text_and_missing_values():
    rng = np.random.default_rng(0)
    text = rng.choice(["a", "b", None], 400)
    text[0] = "only once"
    number = np.where(rng.random(400) < 0.1, np.nan, rng.random(400))
    covered = rng.random(400) < np.where(text == "a", 0.6, 1.0)
    found = excess_risk(pd.DataFrame({"t": text, "n": number}), covered, n_splits=2)
    again = excess_risk(pl.DataFrame({"t": text.tolist(), "n": number}), covered, n_splits=2)
    assert found == again > 0.05


def test_generators_are_seeds_too():
    X, covered = make(100)
    first, second = (
        excess_risk(
            X, covered, estimator=LogisticRegression(), random_state=np.random.default_rng(3)
        )
        for _ in range(2)
    )
    assert first == second


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss": "l2"}, "loss must be one of l1, brier, log"),
        ({"part": "left"}, "part must be one of total, under, over"),
        ({"confidence_level": 90}, "did you mean 0.9"),
        ({"n_splits": 1}, "n_splits must be a whole number >= 2"),
        ({"n_splits": 200}, "at most the 100 rows"),
        ({"estimator": LinearSVC()}, "predict_proba"),
    ],
)
def test_errors_say_what_to_fix(change, message):
    X, covered = make(100)
    with pytest.raises(InvalidInputError, match=message):
        excess_risk(X, covered, **change)
