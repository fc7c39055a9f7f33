"""Coverage of every upper set of levels and of every protected group at once, over many draws.

There are twelve kinds of people. Scores of a kind are exponential, with a scale for every label, so
the coverage of a threshold is known and no test rows are drawn: all noise is that of calibration. A
promise is broken if its mean coverage over the draws is below it by more standard errors than
chance allows once in ten thousand over all promises of a test (Bonferroni). Seeds are fixed.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from fareg import FaReGClassifier
from fareg.calibration import ABSENT, Batch, Labelled, LevelThresholds, Mondrian, Sample, Union
from fareg.groups import Rule

FALSE_ALARM = 1e-4
ALPHA, N_LABELS, N_LEVELS, N_DRAWS = 0.1, 3, 4, 300

KINDS = pd.DataFrame(
    [(a, b, c) for a in (0.0, 1.0) for b in (0.0, 1.0) for c in (0.0, 1.0, 2.0)],
    columns=["a", "b", "c"],
)
SHARES = np.array([6, 5, 4, 5, 4, 3, 5, 4, 3, 3, 2, 2]) / 46  # of the kinds
ALIKE = (KINDS["a"] == KINDS["b"]).to_numpy()
C = KINDS["c"].to_numpy()
HARD = 1 + 3 * ALIKE * (C == 2) + C / 2  # how large scores are
LABEL_SHARES = np.array([0.5, 0.3, 0.2])
# in label 0 the hard kinds are worst off, in label 1 the easy ones, in label 2 one bit decides
SCALES = np.column_stack([HARD, HARD.max() / HARD, 1 + 4 * KINDS["b"].to_numpy()])
# overlapping groups: two bits, where they agree, and a few people
GROUPS = {
    text: Rule.parse(text)
    for text in ("a = 1", "b = 1", "a = 1 and b = 1", "a = 0 and b = 0", "c = 2 and a = 1")
}
INSIDE = {text: rule.inside(KINDS) for text, rule in GROUPS.items()}  # which kinds are members


def ranked(scale):
    """Return the level of every kind, so that the kinds with large scores are in high levels."""
    return np.argsort(np.argsort(scale, kind="stable"), kind="stable") * N_LEVELS // len(KINDS)


ORDERS = {
    "right": ranked(HARD),
    "wrong": N_LEVELS - 1 - ranked(HARD),
    "random": np.random.default_rng(3).permutation(ranked(HARD)),
}


def kind_of(people):
    """Return the number of each row's kind."""
    return (people["a"] * 6 + people["b"] * 3 + people["c"]).to_numpy().astype(np.int64)


@dataclass(frozen=True, eq=False)
class KindLevels:
    """Levels by kind, the same for every label or one column for each."""

    by_kind: np.ndarray

    @property
    def n_levels(self):
        return N_LEVELS if self.by_kind.ndim == 1 else (N_LEVELS,) * self.by_kind.shape[1]

    def levels(self, people):
        return self.by_kind[kind_of(people)]


@dataclass(frozen=True)
class Inside:
    """The members of a group."""

    text: str
    n_cells = 1

    def cells(self, rows):
        return np.where(INSIDE[self.text][kind_of(rows.people)], 0, ABSENT)


def draw(rng, n, scales):
    """Draw calibration rows: kinds, labels, and scores of the true labels."""
    kinds = rng.choice(len(KINDS), size=n, p=SHARES)
    y = rng.choice(N_LABELS, size=n, p=LABEL_SHARES)
    people = KINDS.iloc[kinds].reset_index(drop=True)
    score = rng.exponential(scales[kinds, y])
    return Labelled(people, score, y, N_LABELS, rng.random(n), np.zeros(n))


def calibrated(rows, levels, groups, label_conditional):
    """Unite thresholds of levels with those of groups, all fixed before the rows were drawn."""
    common = {"alpha": ALPHA, "label_conditional": label_conditional}
    parts = [Mondrian.fit(Inside(text), rows, **common) for text in groups]
    if levels is not None:
        parts.append(LevelThresholds.fit(KindLevels(levels), rows, **common))
    return Union(tuple(parts))


def coverages(scales, n, make, n_draws=N_DRAWS, draw=draw):
    """Return the coverage of each kind with each label, (n_draws, n_kinds, n_labels)."""
    rng = np.random.default_rng(17)
    nothing, u = np.zeros((len(KINDS), N_LABELS)), np.zeros(len(KINDS))
    everyone = Batch(KINDS, nothing, nothing, u)
    found = []
    for _ in range(n_draws):
        thresholds = make(draw(rng, n, scales)).thresholds(everyone)
        found.append(1 - np.exp(-np.maximum(thresholds, 0) / scales))
    return np.array(found)


def upper_sets(by_kind):
    """Return who is at least so disadvantaged, (n_kinds, n_labels), and if by label, label only."""
    if by_kind.ndim == 1:
        whole = np.ones((1, N_LABELS), dtype=bool)
        return {f"level >= {m}": (by_kind >= m)[:, None] & whole for m in range(N_LEVELS)}
    return {
        f"level >= {m} in label {y}": (by_kind >= m) & (np.arange(N_LABELS) == y)
        for m in range(N_LEVELS)
        for y in range(N_LABELS)
    }


def members(by_label):
    """Return the members of every group; with ``by_label``, those with each label."""
    if not by_label:
        return {text: np.repeat(own[:, None], N_LABELS, axis=1) for text, own in INSIDE.items()}
    return {
        f"{text} with label {y}": own[:, None] & (np.arange(N_LABELS) == y)
        for text, own in INSIDE.items()
        for y in range(N_LABELS)
    }


def broken(coverage, promises):
    """Return the promises that are credibly broken."""
    weights, z = SHARES[:, None] * LABEL_SHARES, norm.isf(FALSE_ALARM / len(promises))
    found = []
    for name, inside in promises.items():
        of_draws = (coverage * weights * inside).sum(axis=(1, 2)) / (weights * inside).sum()
        if of_draws.mean() < 1 - ALPHA - z * of_draws.std() / np.sqrt(len(of_draws)):
            found.append(name)
    return found


# --- levels and groups together ---

POOLED = np.repeat(HARD[:, None], N_LABELS, axis=1)  # scores that do not depend on the label


@pytest.mark.parametrize("n", [30, 200])
@pytest.mark.parametrize("order", ORDERS)
def test_every_upper_set_and_every_protected_group_is_covered(order, n):
    levels, groups = ORDERS[order], GROUPS
    coverage = coverages(POOLED, n, lambda rows: calibrated(rows, levels, groups, False))
    assert broken(coverage, {**upper_sets(levels), **members(False)}) == []


def test_the_law_sees_what_each_part_is_for():
    """Without the groups' thresholds a group is lost, without the levels' an upper set is."""
    levels = ORDERS["wrong"]
    coverage = coverages(POOLED, 200, lambda rows: calibrated(rows, levels, [], False))
    assert broken(coverage, upper_sets(levels)) == []
    assert "c = 2 and a = 1" in broken(coverage, members(False))
    levels = ORDERS["right"]
    coverage = coverages(POOLED, 200, lambda rows: calibrated(rows, None, GROUPS, False))
    assert broken(coverage, members(False)) == []
    assert f"level >= {N_LEVELS - 1}" in broken(coverage, upper_sets(levels))


@pytest.mark.parametrize("order", ["right", "wrong"])
def test_the_law_sees_thresholds_of_groups_that_are_too_low(order, monkeypatch):
    """Ranks that forget the test row break the promise of a group."""
    from fareg.pvalues import conformal_rank

    def forgetful(n, alpha, *more):
        return np.maximum(conformal_rank(n, alpha, *more) - 2, 1)

    monkeypatch.setattr("fareg.pvalues.conformal_rank", forgetful)
    monkeypatch.setattr("fareg.calibration._levels.conformal_rank", forgetful)
    coverage = coverages(POOLED, 200, lambda rows: calibrated(rows, ORDERS[order], GROUPS, False))
    assert broken(coverage, {**upper_sets(ORDERS[order]), **members(False)})


def test_a_group_that_calibration_rows_have_chosen_loses_the_promise():
    """Of ten overlapping groups of pure noise, the one whose scores look smallest is protected."""
    rng, n, n_groups = np.random.default_rng(5), 60, 10
    covered = {"same rows": np.empty(N_DRAWS), "other rows": np.empty(N_DRAWS)}
    for index in range(N_DRAWS):
        score, inside = rng.exponential(size=(2, n)), rng.random((2, n_groups, n)) < 0.5
        etas = [
            [Sample(score[i][own], None, 1, None).split_thresholds(ALPHA)[0] for own in inside[i]]
            for i in range(2)
        ]
        for name, teacher in (("same rows", 0), ("other rows", 1)):
            covered[name][index] = 1 - np.exp(-etas[0][int(np.argmin(etas[teacher]))])
    z = norm.isf(FALSE_ALARM / 2)
    errors = {name: some.std() / np.sqrt(N_DRAWS) for name, some in covered.items()}
    assert covered["same rows"].mean() < 1 - ALPHA - z * errors["same rows"]
    assert covered["other rows"].mean() >= 1 - ALPHA - z * errors["other rows"]


# --- people with several rows ---


def draw_unevenly(rng, n, scales):
    """People whose score is small have four rows, which are copies of each other."""
    rows = draw(rng, n, scales)
    sizes = np.where(rows.score < 1, 4, 1)
    person = np.repeat(np.arange(n), sizes)
    copies = rows.take(person)
    return Labelled(
        copies.people, copies.score, copies.y, N_LABELS, copies.u, copies.surprise, person
    )


@pytest.mark.parametrize("order", ORDERS)
def test_people_with_several_rows_count_once_in_both_promises(order):
    levels, promises = ORDERS[order], {**upper_sets(ORDERS[order]), **members(False)}

    def fit(rows):
        return calibrated(rows, levels, GROUPS, False)

    assert broken(coverages(POOLED, 80, fit, 150, draw_unevenly), promises) == []

    def fit_as_if_all_rows_were_people(rows):
        plain = rows.take(np.arange(len(rows)))
        return fit(Labelled(plain.people, plain.score, plain.y, N_LABELS, plain.u, plain.surprise))

    assert broken(
        coverages(POOLED, 80, fit_as_if_all_rows_were_people, 150, draw_unevenly), promises
    )


# --- an order for every label ---

OWN_ORDERS = {
    "right": np.column_stack([ranked(SCALES[:, y]) for y in range(N_LABELS)]),
    "wrong": np.column_stack([N_LEVELS - 1 - ranked(SCALES[:, y]) for y in range(N_LABELS)]),
    "random": np.column_stack(
        [np.random.default_rng(y).permutation(ranked(HARD)) for y in range(3)]
    ),
}


@pytest.mark.parametrize("n", [60, 400])
@pytest.mark.parametrize("order", OWN_ORDERS)
def test_every_label_covers_every_upper_set_of_its_own_order(order, n):
    """``P(Y in C | Y = y, level_y >= m) >= 1 - alpha`` for every y and m."""
    levels = OWN_ORDERS[order]
    coverage = coverages(SCALES, n, lambda rows: calibrated(rows, levels, [], True))
    assert broken(coverage, upper_sets(levels)) == []


def test_the_law_sees_an_order_that_another_label_would_need():
    """With the order of label 0 for all labels, the worst off of another label are lost."""
    levels = OWN_ORDERS["right"]
    shared = levels[:, 0]
    coverage = coverages(SCALES, 400, lambda rows: calibrated(rows, shared, [], True))
    assert broken(coverage, upper_sets(levels[:, [0, 0, 0]])) == []
    lost = broken(coverage, upper_sets(levels))
    assert f"level >= {N_LEVELS - 1} in label 1" in lost
    assert not any(name.endswith("label 0") for name in lost)


def test_the_law_sees_labels_that_are_calibrated_together():
    """One order for all and one threshold for all labels: whoever has a hard label is lost."""
    levels = OWN_ORDERS["right"]
    coverage = coverages(SCALES, 400, lambda rows: calibrated(rows, levels[:, 0], [], False))
    assert broken(coverage, upper_sets(levels))


@pytest.mark.parametrize("n", [60, 400])
@pytest.mark.parametrize("order", OWN_ORDERS)
def test_with_label_conditional_groups_and_upper_sets_are_covered_in_every_label(order, n):
    """``P(Y in C | Y = y, X in G) >= 1 - alpha`` and the promise of the orders, together."""
    levels, promises = OWN_ORDERS[order], {**upper_sets(OWN_ORDERS[order]), **members(True)}
    coverage = coverages(SCALES, n, lambda rows: calibrated(rows, levels, GROUPS, True))
    assert broken(coverage, promises) == []
    if order == "wrong" and n == 400:  # the levels alone would lose groups in some label
        alone = coverages(SCALES, n, lambda rows: calibrated(rows, levels, [], True))
        assert broken(alone, members(True))


# --- through the classifier ---

N_CALIBRATION, N_TEST = 240, 300


def draw_table(rng, n):
    """Rows of probabilities and three columns; where two bits agree, the model is often wrong."""
    kinds = KINDS.iloc[rng.choice(len(KINDS), size=n, p=SHARES)].to_numpy()
    p = rng.dirichlet(np.full(N_LABELS, 0.7), size=n)
    y = (rng.random((n, 1)) > np.cumsum(p, axis=1)[:, :-1]).sum(axis=1)
    wrong = (kinds[:, 0] == kinds[:, 1]) & (rng.random(n) < 0.4 + 0.25 * kinds[:, 2])
    columns = ["p0", "p1", "p2", "a", "b", "c"]
    X = pd.DataFrame(np.hstack([p, kinds]), columns=columns)
    return X, np.where(wrong, rng.integers(0, N_LABELS, n), y)


def broken_by(clf, n_draws, promises_of):
    """Return how much each promise is kept in each draw, and those that are broken.

    Levels and groups are learned once, from rows of their own: the promise holds given them.
    """
    rng = np.random.default_rng(19)
    (X, y), taught = draw_table(rng, N_CALIBRATION), draw_table(rng, 2000)
    clf.conformalize(X, y, X_learn=taught[0], y_learn=taught[1])
    excess: dict[str, list[float]] = {}
    for _ in range(n_draws):
        clf = clf.recalibrated(*draw_table(rng, N_CALIBRATION))
        X, y = draw_table(rng, N_TEST)
        hit = clf.predict_set(X)[np.arange(N_TEST), y]
        for name, inside in promises_of(clf, X, y).items():
            # summed, not averaged: each draw counts with its number of rows
            excess.setdefault(name, []).append((hit - clf.confidence_level)[inside].sum())
    z = norm.isf(FALSE_ALARM / len(excess))
    return excess, [
        name
        for name, some in excess.items()
        if np.mean(some) < -z * np.std(some) / np.sqrt(len(some))
    ]


@pytest.mark.filterwarnings("ignore::fareg.FaregWarning")
@pytest.mark.parametrize("label_conditional", [False, True])
@pytest.mark.parametrize("protect", ["found", list(GROUPS.values())])
def test_the_classifier_keeps_both_promises(reader, protect, label_conditional):
    def promises_of(clf, X, y):
        levels = clf.predict_level(X)
        rules = GROUPS.values() if protect != "found" else clf.protected_
        found = {rule.text: rule.inside(X) for rule in rules}
        if not label_conditional:
            return found | {f"level >= {m}": levels >= m for m in range(levels.max() + 1)}
        by_label = {
            f"{name} with label {k}": inside & (y == k)
            for name, inside in found.items()
            for k in range(N_LABELS)
        }
        own = levels[np.arange(len(y)), y]
        return by_label | {
            f"level >= {m} in label {k}": (own >= m) & (y == k)
            for k in range(N_LABELS)
            for m in range(levels[:, k].max() + 1)
        }

    clf = FaReGClassifier(
        reader(),
        confidence_level=0.8,
        sensitive_features=["a", "b", "c"],
        label_conditional=label_conditional,
        protect=protect,
        random_state=0,
    )
    excess, lost = broken_by(clf, 100, promises_of)
    assert lost == []
    assert any(name.startswith("level >= 1") for name in excess)  # there was an order to learn
    assert clf.protected_


@pytest.mark.filterwarnings("ignore::fareg.FaregWarning")
def test_the_law_sees_a_classifier_that_protects_nobody(reader):
    """Split conformal sets, which one level and no group amount to, lose the hardest group."""
    clf = FaReGClassifier(
        reader(),
        confidence_level=0.8,
        sensitive_features=["a", "b", "c"],
        n_levels=1,
        protect="nothing",
        random_state=0,
    )
    rule = Rule.parse("a = 1 and b = 1 and c = 2")
    _, lost = broken_by(clf, 100, lambda clf, X, y: {"everyone": y >= 0, "hard": rule.inside(X)})
    assert lost == ["hard"]
