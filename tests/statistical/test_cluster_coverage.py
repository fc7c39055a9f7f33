"""Coverage of a row of a new person, where calibration has several rows of each person.

Rows of a person are copies of each other, or are alike. A draw is a calibration set of people and
some new people, of each of whom one row is drawn at random. Coverage is estimated over all draws,
and its standard error comes from the draws, which are independent.
"""

import numpy as np
import pytest

from fareg import FaReGClassifier
from fareg.classifiers import CLASSIFIERS
from fareg.groups import Rule
from registry import short

pytestmark = pytest.mark.filterwarnings("ignore::fareg._validation.FaregWarning")

LEVEL = 0.9
N_LABELS = 3
N_NEW = 100  # new people in a draw


def draw_people(rng, n_people, n_rows, *, copies):
    """Return rows of people with so many rows each at most, their labels, and who they are about.

    The first three columns are probabilities, which are wrong about some people; two bits follow.
    With ``copies``, all rows of a person are copies of one. Otherwise people about whom the
    probabilities are wrong have fewer rows.
    """
    bits = rng.integers(2, size=(n_people, 2))
    missed = rng.random(n_people) < np.where(bits[:, 0] == 1, 0.5, 0.1)
    sizes = rng.integers(1, n_rows, size=n_people, endpoint=True)
    sizes = sizes if copies else np.where(missed, 1, sizes)
    person = np.repeat(np.arange(n_people), sizes)
    own = person if copies else np.arange(len(person))
    p = rng.dirichlet(np.full(N_LABELS, 0.7), size=own.max() + 1)[own]
    shuffled = np.where(missed[person, None], p[:, [1, 2, 0]], p)
    # what is random about a row is drawn once for each person, or for each row
    u = rng.random((own.max() + 1, 1))[own]
    y = (u > np.cumsum(shuffled, axis=1)[:, :-1]).sum(axis=1)
    return np.hstack([p, bits[person]]), y, person


def coverage(make, n_people, n_rows, *, copies, n_draws):
    """Return the coverage of one row of each new person, given each label too, with its error."""
    rng = np.random.default_rng([n_people, n_rows])
    covered, labels = [], []
    for index in range(n_draws):
        X, y, person = draw_people(rng, n_people, 2 * n_rows - 1, copies=copies)
        X_new, y_new, _ = draw_people(rng, N_NEW, 1, copies=copies)
        clf = make(index).conformalize(X, y, clusters=person)
        sets = clf.predict_set(X_new)  # nine people show little of other people's values: no drift
        covered.append(sets[np.arange(N_NEW), y_new])
        labels.append(y_new)
    hits, y = np.array(covered), np.array(labels)
    found = []
    for inside in (y >= 0, *(y == label for label in range(N_LABELS))):
        n, k = inside.sum(axis=1), (inside & hits).sum(axis=1)
        ratio = k.sum() / n.sum()
        found.append((ratio, np.sqrt(np.sum((k - ratio * n) ** 2)) / n.sum()))
    return found


# Groups that are protected by name: one bit, and one of four cells.
GROUPS = [Rule.parse(text) for text in ("x3 = 1", "x3 = 0 and x4 = 0")]
MAKERS = {
    **{cls.__name__: lambda cls=cls, **options: short(cls, **options) for cls in CLASSIFIERS},
    "protected": lambda **options: short(FaReGClassifier, protect=GROUPS, **options),
}


@pytest.mark.parametrize("label_conditional", [False, True])
@pytest.mark.parametrize(
    ("n_people", "n_rows", "copies"),
    [(9, 10, True), (20, 20, True), (100, 10, True), (100, 10, False)],
)
@pytest.mark.parametrize("name", MAKERS)
def test_a_row_of_a_new_person_is_covered(
    reader, name, n_people, n_rows, copies, label_conditional
):
    def make(index):
        return MAKERS[name](
            estimator=reader(),
            sensitive_features=[-2, -1],
            label_conditional=label_conditional,
            random_state=index,
        )

    found = coverage(make, n_people, n_rows, copies=copies, n_draws=20)
    for ratio, error in found if label_conditional else found[:1]:
        assert ratio >= LEVEL - 4 * error
