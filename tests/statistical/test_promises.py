"""Coverage of every method over many draws of data: at least what it promises.

A draw is a calibration set and some test rows. Coverage on a group is estimated over all draws; its
standard error comes from the draws, which are independent. A bound at four standard errors fails by
chance less than once in ten thousand runs per group, and the seeds are fixed.
"""

import numpy as np
import pytest
from sklearn.dummy import DummyRegressor

from fareg import (
    AFCPClassifier,
    CondCPClassifier,
    ExhaustiveConformalClassifier,
    FaReGClassifier,
    PLCPClassifier,
    SplitConformalClassifier,
)
from fareg.classifiers import CLASSIFIERS
from fareg.groups import Rule
from registry import short

pytestmark = pytest.mark.filterwarnings("ignore::fareg._validation.FaregWarning")

LEVEL = 0.9
N_LABELS = 3


def draw(rng, n):
    """Rows whose model is wrong more often where the first two of three bits agree."""
    bits = rng.integers(2, size=(n, 3))
    p = rng.dirichlet(np.full(N_LABELS, 0.7), size=n)
    hard = (bits[:, 0] == bits[:, 1]) | (bits[:, 2] & (rng.random(n) < 0.3)).astype(bool)
    flat = np.where(hard[:, None], 1 / N_LABELS, p)
    y = (rng.random((n, 1)) > np.cumsum(flat, axis=1)[:, :-1]).sum(axis=1)
    return np.hstack([p, bits]), y


def coverage(covered, groups):
    """Coverage on each group and its standard error; both arrays of shape (n_draws, n_rows).

    A group that occurs in few draws has no standard error to speak of and is left out.
    """
    found = {}
    for group in np.unique(groups):
        hits, sizes = ((groups == group) & covered).sum(axis=1), (groups == group).sum(axis=1)
        if np.count_nonzero(sizes) >= 20:
            ratio = hits.sum() / sizes.sum()
            found[group] = ratio, np.sqrt(np.sum((hits - ratio * sizes) ** 2)) / sizes.sum()
    return found


def all_kept(covered, groups, level=LEVEL):
    """Tell whether coverage on every group of every view is credibly no lower than promised."""
    found = [coverage(covered, groups[:, view]) for view in range(groups.shape[1])]
    assert all(found)
    return all(ratio >= level - 4 * error for own in found for ratio, error in own.values())


def draw_mistaken(rng, n):
    """Rows whose model takes one label for another, most often where the first bit is set."""
    X, y = draw(rng, n)
    p, bits = X[:, :N_LABELS], X[:, N_LABELS:]
    mistaken = (y == 2) & (rng.random(n) < np.where(bits[:, 0] == 1, 0.9, 0.6))
    p[mistaken] = p[mistaken][:, [2, 1, 0]]
    return X, y


def over_draws(make, groups_of, n_draws, n=120, m=60, seed=0, draw=draw):
    """Return coverage and group numbers of shape (n_draws, n_views, m)."""
    rng = np.random.default_rng(seed)
    covered, groups = [], []
    for index in range(n_draws):
        X, y = draw(rng, n + m)
        clf = make(index).conformalize(X[:n], y[:n])
        covered.append(clf.predict_set(X[n:])[np.arange(m), y[n:]])
        groups.append(groups_of(clf, X[n:], y[n:]))
    return np.array(covered), np.array(groups)


def shared(index):
    return {"sensitive_features": [-3, -2, -1], "random_state": index}


def selections(clf, X, y):
    """What AFCP selected with the true label and the row's levels of it, and everyone."""
    (batch,) = clf._batches(X)
    codes = clf.calibration_.coding.codes(batch.people)
    selected = clf.calibration_.selected(batch)[np.arange(len(y)), y]
    levels = np.take_along_axis(codes, np.maximum(selected, 0), axis=1)
    digits = (selected + 1) * 2 + np.where(selected >= 0, levels, 0)
    return [digits @ 10 ** np.arange(digits.shape[1]), np.full(len(y), -1)]


@pytest.mark.parametrize("n_select", [None, 1, 2])
def test_afcp_covers_given_the_selection_and_the_level(reader, n_select):
    def make(index):
        return AFCPClassifier(reader(), n_select=n_select, **shared(index))

    assert all_kept(*over_draws(make, selections, n_draws=80))


@pytest.mark.parametrize("randomized", [False, True])
@pytest.mark.parametrize("pairs", [False, True])
def test_condcp_covers_every_group_of_the_basis(reader, pairs, randomized):
    def make(index):
        return CondCPClassifier(reader(), pairs=pairs, randomized=randomized, **shared(index))

    def groups_of(clf, X, y):
        first, second, third = bits = X[:, -3:].T
        both = [2 * first + second, 2 * first + third, 2 * second + third]
        return [*bits, np.zeros(len(y)), *(both if pairs else ())]

    covered, groups = over_draws(make, groups_of, n_draws=80)
    assert all_kept(covered, groups)
    assert not randomized or all_kept(~covered, groups, 1 - LEVEL)


def test_plcp_covers_every_region(reader):
    options = {"n_regions": 3, "regions": "linear", "n_restarts": 1, "max_iter": 3}

    def make(index):
        return PLCPClassifier(reader(), **options, **shared(index))

    def groups_of(clf, X, y):
        return [clf.predict_region(X), np.zeros(len(y))]

    covered, groups = over_draws(make, groups_of, n_draws=50, n=200)
    assert all_kept(covered, groups)
    assert all_kept(~covered, groups, 1 - LEVEL - 0.05)


# --- within labels, people with several rows, and groups that are given ---

BITS = [Rule.parse(text) for text in ("x3 = 1", "x4 = 0", "x3 = 0 and x4 = 0")]
MAKERS = {
    **{cls.__name__: lambda cls=cls, **options: short(cls, **options) for cls in CLASSIFIERS},
    "protected": lambda **options: short(FaReGClassifier, protect=BITS, **options),
}


def of_labels(make, reader, **options):
    def made(index):
        own = make(estimator=reader(), **options, **shared(index))
        return own.set_params(confidence_level=0.8)

    return over_draws(made, lambda clf, X, y: [y], n_draws=40, n=240, seed=1, draw=draw_mistaken)


@pytest.mark.parametrize("name", MAKERS)
def test_with_label_conditional_every_method_covers_every_label(reader, name):
    assert all_kept(*of_labels(MAKERS[name], reader, label_conditional=True), level=0.8)


def test_without_it_a_label_is_missed(reader):
    covered, groups = of_labels(SplitConformalClassifier, reader)
    ratio, error = coverage(covered, groups[:, 0])[2]
    assert ratio < 0.8 - 4 * error


def draw_people(rng, n_people, n_rows, *, copies):
    """Return rows of people with so many rows each at most, their labels, and who they are about.

    Probabilities are wrong about some people; two bits follow. With ``copies``, all rows of a
    person are copies of one. Otherwise people about whom probabilities are wrong have fewer rows.
    """
    bits = rng.integers(2, size=(n_people, 2))
    missed = rng.random(n_people) < np.where(bits[:, 0] == 1, 0.5, 0.1)
    sizes = rng.integers(1, n_rows, size=n_people, endpoint=True)
    person = np.repeat(np.arange(n_people), sizes if copies else np.where(missed, 1, sizes))
    own = person if copies else np.arange(len(person))
    p = rng.dirichlet(np.full(N_LABELS, 0.7), size=own.max() + 1)[own]
    shuffled = np.where(missed[person, None], p[:, [1, 2, 0]], p)
    # what is random about a row is drawn once for each person, or for each row
    u = rng.random((own.max() + 1, 1))[own]
    y = (u > np.cumsum(shuffled, axis=1)[:, :-1]).sum(axis=1)
    return np.hstack([p, bits[person]]), y, person


@pytest.mark.parametrize("label_conditional", [False, True])
@pytest.mark.parametrize(
    ("n_people", "n_rows", "copies"),
    [(9, 10, True), (20, 20, True), (100, 10, True), (100, 10, False)],
)
@pytest.mark.parametrize("name", MAKERS)
def test_a_row_of_a_new_person_is_covered(
    reader, name, n_people, n_rows, copies, label_conditional
):
    """Rows of a person in calibration are copies of each other, or alike."""
    rng, n_new = np.random.default_rng([n_people, n_rows]), 100
    options = {"sensitive_features": [-2, -1], "label_conditional": label_conditional}
    covered, labels = [], []
    for index in range(20):
        X, y, person = draw_people(rng, n_people, 2 * n_rows - 1, copies=copies)
        X_new, y_new, _ = draw_people(rng, n_new, 1, copies=copies)
        clf = MAKERS[name](estimator=reader(), random_state=index, **options)
        sets = clf.conformalize(X, y, clusters=person).predict_set(X_new)
        covered.append(sets[np.arange(n_new), y_new])
        labels.append([np.zeros(n_new), y_new] if label_conditional else [np.zeros(n_new)])
    assert all_kept(np.array(covered), np.array(labels))


def worst_cell(make):
    """Return coverage, and its error, of the worst off of the four cells of the first two bits."""
    covered, groups = over_draws(
        make, lambda clf, X, y: [2 * X[:, -3] + X[:, -2]], n_draws=60, n=240
    )
    return min(coverage(covered, groups[:, 0]).values(), key=lambda found: found[0])


CELLS = [Rule.parse(f"x3 = {first} and x4 = {second}") for first in (0, 1) for second in (0, 1)]


@pytest.mark.parametrize(("protect", "is_kept"), [(CELLS, True), ("nothing", False)])
def test_groups_that_are_given_have_a_promise(reader, protect, is_kept):
    """A learner that finds nobody leaves the cells to their own thresholds."""

    def make(index):
        nobody, options = DummyRegressor(), shared(index)
        return FaReGClassifier(reader(), learner=nobody, protect=protect, **options)

    ratio, error = worst_cell(make)
    assert (ratio >= LEVEL - 4 * error) == is_kept


@pytest.mark.parametrize("is_added", [False, True])
def test_a_base_adds_its_promise_to_the_published_method(reader, is_added):
    def make(index):
        base = ExhaustiveConformalClassifier() if is_added else None
        options = {"epochs": 1, "n_draws": 1, **shared(index)}
        return FaReGClassifier.paper(reader(), base=base, **options)

    ratio, error = worst_cell(make)
    if is_added:
        assert ratio >= LEVEL - 4 * error
    else:  # a network that is not trained protects nobody
        assert ratio < LEVEL - 4 * error
