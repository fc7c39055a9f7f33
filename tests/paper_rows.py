"""Tables in which the two sexes of two colours are covered unequally."""

import numpy as np
import pandas as pd

from fareg.calibration import Batch, Labelled


def xnor(n, seed=0, gap=0.4):
    """Return features, a shortfall larger for Red Female and Blue Male, and who these are."""
    rng = np.random.default_rng(seed)
    people = pd.DataFrame(
        {
            "Color": rng.choice(["Red", "Blue"], n),
            "Gender": rng.choice(["Female", "Male"], n),
            "Age": rng.uniform(18, 90, n),
            "Region": rng.choice(list("abcde"), n),
        }
    ).astype({"Color": object, "Gender": object, "Region": object})
    hard = ((people["Color"] == "Red") == (people["Gender"] == "Female")).to_numpy()
    shortfall = np.clip(rng.random(n) + gap * hard - gap / 2, 0, 1)
    return people, shortfall, hard


class Memberships:
    """A learner whose membership is a column of the table."""

    def predict(self, people):
        return people["q"].to_numpy()


def calibration_rows(n, q, seed=0, n_classes=3, clusters=None, unknown=0.03):
    """Return labelled rows with memberships q; a few labels may be unknown to the model."""
    rng = np.random.default_rng(seed)
    people = pd.DataFrame({"q": np.broadcast_to(np.asarray(q, dtype=float), n)})
    y = np.where(rng.random(n) < unknown, -1, rng.integers(0, n_classes, n))
    score = np.where(y >= 0, rng.random(n).round(2), np.inf)  # rounded, so that there are ties
    return Labelled(people, score, y, n_classes, rng.random(n), np.zeros(n), clusters)


def asking_rows(n, q, seed=1, n_classes=3):
    """Return rows that ask for sets."""
    rng = np.random.default_rng(seed)
    people = pd.DataFrame({"q": np.broadcast_to(np.asarray(q, dtype=float), n)})
    proba = np.full((n, n_classes), 1 / n_classes)
    return Batch(people, proba, rng.random((n, n_classes)).round(2), rng.random(n))
