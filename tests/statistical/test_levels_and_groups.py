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

from fareg import FaReGClassifier, pvalues
from fareg.calibration import (
    ABSENT,
    Batch,
    Labelled,
    LevelThresholds,
    Mondrian,
    Rectified,
    Sample,
    Union,
)
from fareg.groups import DisadvantageLevels, Rule, learn_disadvantage
from fareg.paper import DrawnGroups
from fareg.paper._draws import drawn_members
from fareg.scores import aps
from tied_rows import level_pvalues, level_thresholds

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
POOLED = np.repeat(HARD[:, None], N_LABELS, axis=1)  # scores that do not depend on the label
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


def shuffled(seed):
    return np.random.default_rng(seed).permutation(ranked(HARD))


OWN = np.column_stack([ranked(SCALES[:, y]) for y in range(N_LABELS)])
# levels for all labels, of shape (n_kinds,), or for each label, (n_kinds, n_labels)
ORDERS = {
    "right": ranked(HARD),
    "wrong": N_LEVELS - 1 - ranked(HARD),
    "random": shuffled(3),
    "right by label": OWN,
    "wrong by label": N_LEVELS - 1 - OWN,
    "random by label": np.column_stack([shuffled(y) for y in range(N_LABELS)]),
    "first label's": OWN[:, 0],
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


def calibrated(rows, levels, groups, by_label):
    """Unite thresholds of levels with those of groups, all fixed before the rows were drawn."""
    common = {"alpha": ALPHA, "label_conditional": by_label}
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


def by_labels(groups):
    """Return the members of each group with each label, (n_kinds, n_labels), by name."""
    return {
        f"{name} in label {y}": (own if own.ndim == 2 else own[:, None])
        & (np.arange(N_LABELS) == y)
        for name, own in groups.items()
        for y in range(N_LABELS)
    }


def upper_sets(levels):
    """Return who is at least so disadvantaged, by label if levels are."""
    own = {f"level >= {m}": levels >= m for m in range(N_LEVELS)}
    return own if levels.ndim == 1 else by_labels(own)


def broken(coverage, promises):
    """Return the promises that are credibly broken."""
    weights, z = SHARES[:, None] * LABEL_SHARES, norm.isf(FALSE_ALARM / len(promises))
    found = []
    for name, own in promises.items():
        inside = weights * (own if own.ndim == 2 else own[:, None])
        of_draws = (coverage * inside).sum(axis=(1, 2)) / inside.sum()
        if of_draws.mean() < 1 - ALPHA - z * of_draws.std() / np.sqrt(len(of_draws)):
            found.append(name)
    return found


# --- levels and groups that are given ---

SHARED = [(order, n) for order in ("right", "wrong", "random") for n in (30, 200)]
BY_LABEL = [(f"{order} by label", n) for order in ("right", "wrong", "random") for n in (60, 400)]


@pytest.mark.parametrize("groups", [(), tuple(GROUPS)], ids=["levels", "levels and groups"])
@pytest.mark.parametrize(("order", "n"), [*SHARED, *BY_LABEL])
def test_every_upper_set_and_every_group_is_covered(order, n, groups):
    """``P(Y in C | level >= m)`` and ``P(Y in C | X in G)``; by label, given each label too."""
    levels, by_label = ORDERS[order], order.endswith("label")
    scales = SCALES if by_label else POOLED
    coverage = coverages(scales, n, lambda rows: calibrated(rows, levels, groups, by_label))
    inside = {text: INSIDE[text] for text in groups}
    promises = {**upper_sets(levels), **(by_labels(inside) if by_label else inside)}
    assert broken(coverage, promises) == []


@pytest.mark.parametrize(
    ("scales", "levels", "groups", "by_label", "kept", "lost"),
    [
        (POOLED, None, GROUPS, False, INSIDE, upper_sets(ORDERS["right"])),
        (POOLED, ORDERS["wrong"], (), False, {}, {"few": INSIDE["c = 2 and a = 1"]}),
        (SCALES, OWN[:, 0], (), True, upper_sets(OWN[:, [0] * 3]), upper_sets(OWN)),
        (SCALES, OWN[:, 0], (), False, upper_sets(OWN[:, 0]), upper_sets(OWN)),
        (SCALES, ORDERS["wrong by label"], (), True, {}, by_labels(INSIDE)),
    ],
    ids=["no levels", "no groups", "order of another label", "labels together", "none in a label"],
)
def test_the_law_sees_what_each_part_is_for(scales, levels, groups, by_label, kept, lost):
    n = 200 if scales is POOLED else 400
    coverage = coverages(scales, n, lambda rows: calibrated(rows, levels, groups, by_label))
    assert broken(coverage, {"everyone": np.ones(len(KINDS)), **kept}) == []
    assert broken(coverage, lost)


def looks_upwards_only(quantiles):
    return np.array([quantiles[j, j:].min() for j in range(len(quantiles))])


def lower(n, alpha, *more):
    return pvalues.conformal_rank(n, alpha + 0.03, *more)


def forgets_the_test_row(n, alpha, *more):
    return np.maximum(pvalues.conformal_rank(n, alpha, *more) - 1, 1)


@pytest.mark.parametrize(
    ("order", "n", "place", "wrong"),
    [
        *((order, 150, "conformal_rank", lower) for order in ("right", "wrong", "random")),
        ("right", 60, "conformal_rank", forgets_the_test_row),
        ("wrong", 300, "_isotonic", looks_upwards_only),
    ],
)
def test_the_law_sees_thresholds_of_levels_that_are_too_low(order, n, place, wrong, monkeypatch):
    monkeypatch.setattr(f"fareg.calibration._levels.{place}", wrong)
    coverage = coverages(POOLED, n, lambda rows: calibrated(rows, ORDERS[order], (), False))
    assert broken(coverage, upper_sets(ORDERS[order]))


def test_the_law_sees_thresholds_of_groups_that_are_too_low(monkeypatch):
    """Ranks that forget the test row break the promise of a group."""
    honest = pvalues.conformal_rank
    monkeypatch.setattr(
        "fareg.pvalues.conformal_rank",
        lambda n, alpha, *more: np.maximum(honest(n, alpha, *more) - 2, 1),
    )
    coverage = coverages(POOLED, 200, lambda rows: calibrated(rows, None, GROUPS, False))
    assert broken(coverage, INSIDE)


def credibly_low(coverage, n_tests=2):
    error = coverage.std() / np.sqrt(len(coverage))
    return coverage.mean() < 1 - ALPHA - norm.isf(FALSE_ALARM / n_tests) * error


@pytest.mark.parametrize("teacher", ["same rows", "other rows"])
def test_what_calibration_rows_have_chosen_loses_the_promise(teacher):
    """Groups of pure noise, of which scores choose one, and cells of noise that scores rank."""
    rng, n, n_cells = np.random.default_rng(5), 200, 40
    of_group, of_levels = np.empty((2, 2 * N_DRAWS))
    chosen = 0 if teacher == "same rows" else 1
    for index in range(2 * N_DRAWS):
        score, inside = rng.exponential(size=(2, 60)), rng.random((2, 10, 60)) < 0.5
        etas = [
            [Sample(score[i][own], None, 1, None).split_thresholds(ALPHA)[0] for own in inside[i]]
            for i in range(2)
        ]
        of_group[index] = 1 - np.exp(-etas[0][int(np.argmin(etas[chosen]))])
        cells, scores = rng.integers(0, n_cells, size=(2, n)), rng.exponential(size=(2, n))
        means = np.bincount(cells[chosen], scores[chosen], n_cells)
        means /= np.maximum(np.bincount(cells[chosen], minlength=n_cells), 1)
        upper = (means.argsort().argsort() >= n_cells // 2).astype(int)
        theta = level_thresholds(scores[0], upper[cells[0]], 2, alpha=ALPHA)
        of_levels[index] = (1 - np.exp(-theta)).mean()  # of everyone: half of the cells each
    for coverage in (of_group, of_levels):
        assert credibly_low(coverage, 4) == (teacher == "same rows")


def test_a_single_lower_level_has_no_promise():
    """Without any signal, small levels are told apart by chance: the lowest pays for the top."""
    plain = np.ones_like(POOLED)
    coverage = coverages(plain, 60, lambda rows: calibrated(rows, ORDERS["right"], (), False), 600)
    lowest = {"lowest": ORDERS["right"] == 0}
    assert broken(coverage, lowest) == ["lowest"]
    assert broken(coverage, upper_sets(ORDERS["right"])) == []


@pytest.mark.parametrize("order", ["right", "wrong"])
def test_pvalues_of_every_upper_set_are_valid(order):
    """``P(p <= t | level >= m) <= t`` for all t at once is asked at a few of them."""
    rng, n, n_test, by_kind = np.random.default_rng(12), 50, 100, ORDERS[order]
    p, asked = np.empty((400, n_test)), np.empty((400, n_test), dtype=int)
    for index in range(400):
        rows = draw(rng, n + n_test, POOLED)
        levels = by_kind[kind_of(rows.people)]
        asked[index], new = levels[n:], rows.score[n:, None]
        own = level_pvalues(rows.score[:n], levels[:n], new, asked[index], N_LEVELS)
        p[index] = own[:, 0]
    for m in range(N_LEVELS):
        for t in (0.05, 0.1, 1 / 3, 0.5, 0.8):
            # summed, not averaged: each draw counts with its number of rows
            excess = ((asked >= m) * ((p <= t) - t)).sum(axis=1)
            assert excess.mean() <= 4 * excess.std() / np.sqrt(len(excess))


# --- people with several rows ---


def draw_unevenly(rng, n, scales):
    """People whose score is small have four rows, which are copies of each other."""
    rows = draw(rng, n, scales)
    person = np.repeat(np.arange(n), np.where(rows.score < 1, 4, 1))
    own = rows.take(person)
    return Labelled(own.people, own.score, own.y, N_LABELS, own.u, own.surprise, person)


@pytest.mark.parametrize("order", ["right", "wrong", "random"])
def test_people_with_several_rows_count_once_in_both_promises(order):
    levels, promises = ORDERS[order], {**upper_sets(ORDERS[order]), **INSIDE}

    def fit(rows):
        return calibrated(rows, levels, GROUPS, False)

    def fit_as_if_all_rows_were_people(rows):
        return fit(Labelled(rows.people, rows.score, rows.y, N_LABELS, rows.u, rows.surprise))

    assert broken(coverages(POOLED, 80, fit, 150, draw_unevenly), promises) == []
    wrong = coverages(POOLED, 80, fit_as_if_all_rows_were_people, 150, draw_unevenly)
    assert broken(wrong, promises)


# --- through sets: ties, rows that teach, drawn groups, the whole classifier ---


def short_of(excess):
    """Return for which keys the mean over draws of a sum of (covered - level) is credibly negative.

    Sums are compared, not averages: each draw counts with its number of rows.
    """
    return {
        key
        for key, sums in excess.items()
        if len(sums) >= 20 and np.mean(sums) < -4 * np.std(sums) / np.sqrt(len(sums))
    }


class Excess(dict):
    """Sums of (covered - level) over groups of test rows, one for each draw."""

    def add(self, hits, level, groups):
        for name, inside in groups.items():
            self.setdefault(name, []).append((hits - level)[inside].sum())


@dataclass(frozen=True)
class ColumnLevels:
    """Reads levels, and a quantile of the scores, from a column."""

    n_levels = 3

    def levels(self, people):
        return people["level"].to_numpy().astype(np.int64)

    def predict(self, people):
        return 0.2 * people["level"].to_numpy()


def draw_tied(rng, n):
    """Draw rows of two labels: tied scores that rise with the level, the more so for label 1."""
    levels, y = rng.integers(0, 3, size=n), (rng.random(n) < 0.4).astype(np.int64)
    own = np.round(rng.beta(1 + levels * (1 + y), 3), 1)
    first = np.where(y == 0, own, 1 - own)
    scores = np.column_stack([first, 1 - first])
    return Batch(pd.DataFrame({"level": levels * 1.0}), scores, scores, rng.random(n)), y


@pytest.mark.parametrize("calibration", [LevelThresholds, Rectified])
def test_ties_cost_no_coverage(calibration):
    """Levels within labels, and rectified scores, whose ties rounding must not tear apart."""
    rng, n_test, excess = np.random.default_rng(13), 200, Excess()
    by_label = calibration is LevelThresholds
    for _ in range(150):
        batch, y = draw_tied(rng, 60)
        rows = batch.labelled(y)
        found = calibration.fit(ColumnLevels(), rows, ALPHA, label_conditional=by_label)
        batch, y = draw_tied(rng, n_test)
        hits = (batch.scores <= found.thresholds(batch))[np.arange(n_test), y]
        levels = ColumnLevels().levels(batch.people)
        own = {(m, k): (levels >= m) & (y == k) for m in range(3) for k in (0, 1)}
        excess.add(hits, 1 - ALPHA, own if by_label else {"everyone": y >= 0})
    assert short_of(excess) == set()


def draw_biased(rng, n, gap=0.9):
    """Rows of two bits; where they agree the model's probabilities are wrong with that chance."""
    bits = rng.integers(0, 2, size=(n, 2))
    p = rng.dirichlet(np.full(N_LABELS, 0.7), size=n)
    y = (rng.random((n, 1)) > np.cumsum(p, axis=1)[:, :-1]).sum(axis=1)
    wrong = (bits[:, 0] == bits[:, 1]) & (rng.random(n) < gap)
    u, people = rng.random(n), pd.DataFrame(bits * 1.0, columns=["a", "b"])
    return Batch(people, p, aps(p, u), u), np.where(wrong, rng.integers(0, N_LABELS, n), y)


@pytest.mark.parametrize("seed", [0, 1])
def test_levels_learned_on_other_rows_cover_every_upper_set(seed):
    """Given the rows that taught the levels, over draws of the rows that calibrate."""

    def labelled(n):
        batch, y = draw_biased(rng, n)
        return batch.labelled(y)

    rng, n, n_test = np.random.default_rng(seed), 100, 200
    teachers = labelled(300)
    missed = (teachers.score > np.quantile(teachers.score, 1 - ALPHA)).astype(np.float64)
    learned = learn_disadvantage(teachers.people, missed, seed=seed)
    levels = DisadvantageLevels.cut(learned, teachers.people, n_levels=20, n_calibration=n)
    assert levels.n_levels > 1
    by_levels, by_split = Excess(), Excess()
    for _ in range(120):
        rows, test = labelled(n), labelled(n_test)
        found = levels.levels(test.people)
        upper = {m: found >= m for m in range(levels.n_levels)}
        fitted = LevelThresholds.fit(levels, rows, ALPHA, label_conditional=False)
        by_levels.add(test.score <= fitted.theta[0][found], 1 - ALPHA, upper)
        by_split.add(test.score <= fitted.sample.split_thresholds(ALPHA), 1 - ALPHA, upper)
    assert short_of(by_levels) == set()
    assert levels.n_levels - 1 in short_of(by_split)  # split sets fail the worst off here


LEVEL, N_TEST = 0.8, 200


@dataclass(frozen=True)
class WhereBitsAgree:
    """A membership that is higher where the two bits agree."""

    def predict(self, people):
        return np.where(people["a"] == people["b"], 0.8, 0.2)


def excess_of_draws(n, gap):
    """Return the excess for everyone (0), and for the members of each random group (from 1)."""
    rng, excess, options = np.random.default_rng(7), Excess(), {"n_draws": 3}
    for _ in range(60):
        batch, y = draw_biased(rng, n, gap)
        found = DrawnGroups.fit(
            WhereBitsAgree(), batch.labelled(y), 1 - LEVEL, label_conditional=False, **options
        )
        batch, y = draw_biased(rng, N_TEST, gap)
        hits = (batch.scores <= found.thresholds(batch))[np.arange(N_TEST), y]
        groups = [np.ones(N_TEST, dtype=bool), *drawn_members(WhereBitsAgree(), batch, 3)]
        excess.add(hits, LEVEL, dict(enumerate(groups)))
    return excess


@pytest.mark.parametrize(("n", "gap"), [(60, 0.9), (200, 0.9), (200, 0.0)])
def test_random_groups_of_other_rows_cover_their_members(n, gap):
    assert short_of(excess_of_draws(n, gap)) == set()


def test_the_law_sees_thresholds_of_random_groups_that_are_too_low(monkeypatch):
    own = pvalues.CalibrationScores
    honest = own.quantiles
    monkeypatch.setattr(own, "quantiles", lambda table, alpha: honest(table, alpha + 0.1))
    assert short_of(excess_of_draws(200, 0.9))


@pytest.mark.filterwarnings("ignore::fareg.FaregWarning")
@pytest.mark.parametrize("learn_from", ["split", "train"])
@pytest.mark.parametrize("gap", [0.9, 0.0])
def test_levels_and_named_groups_keep_their_promise(reader, learn_from, gap):
    """Rows that teach, split off or out of fold, do not calibrate."""
    rng, n, excess = np.random.default_rng(11), 400, Excess()
    for repeat in range(40):
        batch, y = draw_biased(rng, n + N_TEST, gap)
        X = np.hstack([batch.proba, batch.people])
        clf = FaReGClassifier(
            reader().estimator,  # not frozen: fit trains it
            confidence_level=LEVEL,
            sensitive_features=[3, 4],
            learn_from=learn_from,
            random_state=repeat,
        ).fit(X[:n], y[:n])
        levels = clf.predict_level(X[n:])
        who = {f"level >= {m}": levels >= m for m in np.unique(levels)}
        people = pd.DataFrame(X[n:, 3:], columns=["x3", "x4"])
        who |= {rule.text: rule.inside(people) for rule in clf.protected_}
        excess.add(clf.predict_set(X[n:])[np.arange(N_TEST), y[n:]], LEVEL, who)
    assert short_of(excess) == set()
    assert gap == 0.0 or sum(len(sums) >= 20 for sums in excess.values()) > 1  # more to find


def draw_table(rng, n):
    """Rows of probabilities and three columns; where two bits agree, the model is often wrong."""
    kinds = KINDS.iloc[rng.choice(len(KINDS), size=n, p=SHARES)].to_numpy()
    p = rng.dirichlet(np.full(N_LABELS, 0.7), size=n)
    y = (rng.random((n, 1)) > np.cumsum(p, axis=1)[:, :-1]).sum(axis=1)
    wrong = (kinds[:, 0] == kinds[:, 1]) & (rng.random(n) < 0.4 + 0.25 * kinds[:, 2])
    X = pd.DataFrame(np.hstack([p, kinds]), columns=["p0", "p1", "p2", "a", "b", "c"])
    return X, np.where(wrong, rng.integers(0, N_LABELS, n), y)


def excess_of(reader, groups_of, n_draws=100, n=240, n_test=300, **options):
    """Return the classifier and the excess of groups, with levels and words of rows of their own.

    The promise holds given what was learned, so levels and groups stay and thresholds are new.
    """
    common = {"confidence_level": LEVEL, "sensitive_features": ["a", "b", "c"], "random_state": 0}
    rng, excess = np.random.default_rng(19), Excess()
    (X, y), taught = draw_table(rng, n), draw_table(rng, 2000)
    clf = FaReGClassifier(reader(), **common, **options)
    clf.conformalize(X, y, X_learn=taught[0], y_learn=taught[1])
    for _ in range(n_draws):
        clf = clf.recalibrated(*draw_table(rng, n))
        X, y = draw_table(rng, n_test)
        hits = clf.predict_set(X)[np.arange(n_test), y]
        excess.add(hits, LEVEL, groups_of(clf, X, y))
    return clf, excess


@pytest.mark.filterwarnings("ignore::fareg.FaregWarning")
@pytest.mark.parametrize("label_conditional", [False, True])
@pytest.mark.parametrize("protect", ["found", list(GROUPS.values())])
def test_the_classifier_keeps_both_promises(reader, protect, label_conditional):
    def groups_of(clf, X, y):
        levels = clf.predict_level(X)
        rules = GROUPS.values() if protect != "found" else clf.protected_
        found = {rule.text: rule.inside(X) for rule in rules}
        if not label_conditional:
            return found | {f"level >= {m}": levels >= m for m in range(levels.max() + 1)}
        own = levels[np.arange(len(y)), y]
        return {
            f"{name} in label {k}": inside & (y == k)
            for k in range(N_LABELS)
            for name, inside in (
                found | {f"level >= {m}": own >= m for m in range(levels[:, k].max() + 1)}
            ).items()
        }

    options = {"label_conditional": label_conditional, "protect": protect}
    clf, excess = excess_of(reader, groups_of, **options)
    assert short_of(excess) == set()
    assert any(name.startswith("level >= 1") for name in excess)  # there was an order to learn
    assert clf.protected_


@pytest.mark.filterwarnings("ignore::fareg.FaregWarning")
def test_the_law_sees_a_classifier_that_protects_nobody(reader):
    """Split conformal sets, which one level and no group amount to, lose the hardest group."""
    rule = Rule.parse("a = 1 and b = 1 and c = 2")

    def groups_of(clf, X, y):
        return {"everyone": y >= 0, "hard": rule.inside(X)}

    _, excess = excess_of(reader, groups_of, n_levels=1, protect="nothing")
    assert short_of(excess) == {"hard"}
