"""What notebooks and terminals show of fitted classifiers, audits and groups."""

import re

import numpy as np
import pandas as pd
import pytest
import sklearn

import fareg
from registry import short_classifiers

NASTY = "<script>alert(1)</script>"


def table(n, seed=0):
    """Return rows with probabilities and a badly named level whose labels nobody knows."""
    rng = np.random.default_rng(seed)
    said = rng.dirichlet([1, 1, 1], n)
    group = rng.integers(3, size=n)
    true = np.where(group[:, None] == 0, 1 / 3, said)
    y = (rng.random((n, 1)) > true.cumsum(axis=1)).sum(axis=1).clip(0, 2)
    X = pd.DataFrame(said, columns=list("abc")).assign(g=np.array([NASTY, "v", "w"])[group])
    return X, y


@pytest.fixture(scope="module")
def fitted(reader):
    clf = fareg.FaReGClassifier(
        reader(), sensitive_features=[3], confidence_level=0.8, random_state=0
    )
    return clf.conformalize(*table(2000))


def texts(html):
    return re.sub(r"<[^>]*>", " ", html.split("</style>")[1])


@pytest.mark.parametrize("name", sorted(short_classifiers()))
def test_a_fitted_classifier_shows_its_promise(name, reader):
    clf = short_classifiers()[name].set_params(estimator=reader(), sensitive_features=[3])
    diagram = clf._repr_html_()
    assert "fareg-card" not in diagram
    assert "sk-top-container" in diagram
    clf.conformalize(*table(150))
    html = clf._repr_html_()
    assert clf._repr_mimebundle_()["text/html"] == html
    assert clf.promise_ in texts(html)
    assert "90%" in clf.promise_
    assert ("no group" in clf.promise_) == (name == "paper")
    assert "ProbabilityReader" in texts(html)
    with sklearn.config_context(display="text"):
        assert "text/html" not in clf._repr_mimebundle_()
        assert not hasattr(clf, "_repr_html_")


def test_the_card_names_groups_and_draws_levels_and_escapes_both(fitted):
    html = fitted._repr_html_()
    (named,) = fitted.named_groups_
    assert NASTY in named.rule.text
    assert NASTY not in html
    assert "&lt;script&gt;" in html
    assert len(html) < 20_000
    n_levels = len(fitted.thresholds_)
    assert html.count('class="point before"') == html.count('class="point after"') == n_levels > 1
    assert f"{named.coverage:.1%}" in html
    assert f"{named.coverage:.1%} of" in repr(named)


def test_label_conditional_levels_are_drawn_too(reader):
    clf = fareg.FaReGClassifier(
        reader(),
        sensitive_features=[3],
        label_conditional=True,
        random_state=0,
    )
    html = clf.conformalize(*table(2000))._repr_html_()
    assert 'class="point after"' in html
    assert ", each within every true label, if" in html


def test_an_audit_shows_its_verdict_findings_and_picture(fitted):
    X, y = table(1500, seed=1)
    bad = fitted.predict_set(X) & (X["g"] != NASTY).to_numpy()[:, None]
    told = fareg.audit(X, y, bad, sensitive_features=["g"], measures=False, random_state=0)
    html = told._repr_html_()
    assert "<script" not in html
    assert "heat" in html
    for group in told.findings:
        assert f"{group.rate.share:.1%}" in html
    few = fareg.audit([[0.0]], ["a"], [["a", "b"]], measures=False)._repr_html_()
    assert "Too few rows to tell" in few
    report = fitted.report(X, y, measures=False)
    assert "<script" not in report._repr_html_()
    assert 'class="point after"' in report._repr_html_()
