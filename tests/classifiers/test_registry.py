"""Every classifier of the registry is where a reader looks for it; the guide to a new one runs."""

import re
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

import fareg
from fareg.classifiers import CLASSIFIERS, ConformalClassifier
from fareg.experiments import _methods
from registry import short_classifiers
from stored_zoo import CONFORMAL

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("cls", CLASSIFIERS)
def test_every_classifier_is_public_documented_saved_and_compared(cls):
    assert issubclass(cls, ConformalClassifier)
    assert cls.__name__ in fareg.__all__
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert f"::: fareg.{cls.__name__}\n" in page
    assert cls in _methods.CLASSIFIERS.values()
    assert cls in map(type, CONFORMAL.values())
    assert type(short_classifiers()[cls.__name__]) is cls


def test_the_registry_holds_every_public_classifier():
    public = {name for name in fareg.__all__ if name.endswith("Classifier")}
    assert public == {cls.__name__ for cls in CLASSIFIERS}


@pytest.fixture
def guide(monkeypatch):
    """Return the module that the guide to a new method writes."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = page.split("## Add a method")[1].split("\n## ")[0]
    (block,) = re.findall(r"^```python\n(.*?)^```", section, re.M | re.S)
    module = types.ModuleType("kmeans_of_the_guide")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(block, "CONTRIBUTING.md", "exec"), vars(module))
    return module


def table(n, seed):
    """Return rows with probabilities, two columns that make four clusters, and labels."""
    rng = np.random.default_rng(seed)
    said = rng.dirichlet([1, 1, 1], n)
    corner = rng.integers(2, size=(n, 2)) * 5.0
    true = np.where(corner[:, :1] > 0, 1 / 3, said)
    y = (rng.random((n, 1)) > true.cumsum(axis=1)).sum(axis=1).clip(0, 2)
    return np.column_stack([said, corner + rng.normal(scale=0.3, size=(n, 2))]), y


def test_the_guide_to_a_new_method_gives_one_that_works(guide, reader):
    given = guide.KMeansConformalClassifier(
        reader(), sensitive_features=[3, 4], confidence_level=0.8, random_state=0
    )
    clf = clone(given).conformalize(*table(1600, 0))
    X, y = table(4000, 1)
    sets = clf.predict_set(X)
    np.testing.assert_array_equal(sets, clf.predict_p(X) > clf.alpha_)
    covered = sets[np.arange(4000), y]
    for side in (X[:, 3] > 2.5, X[:, 3] < 2.5):
        assert abs(covered[side].mean() - 0.8) < 0.06
    plain = fareg.SplitConformalClassifier(reader(), confidence_level=0.8, random_state=0)
    plain.conformalize(*table(1600, 0))
    assert plain.predict_set(X)[np.arange(4000), y][X[:, 3] > 2.5].mean() < 0.74
    with pytest.raises(fareg.FaregError, match="n_clusters"):
        clone(given).set_params(n_clusters=0).conformalize(X, y)
    with pytest.warns(fareg.FaregWarning, match="too few to find clusters"):
        clone(given).conformalize(X[:30], y[:30])
