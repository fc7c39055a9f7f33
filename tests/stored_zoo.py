"""One fitted estimator, at least, of every class that a model file holds without trust.

``forged`` writes files of an editor who knows how checksums are made.
"""

import inspect
import json
import warnings
import zipfile
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import safetensors.numpy
from sklearn import discriminant_analysis as discriminant
from sklearn import ensemble, naive_bayes, tree
from sklearn import linear_model as linear
from sklearn import preprocessing as pre
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.dummy import DummyClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.isotonic import IsotonicRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline

import fareg
from fareg._encoding import FillEmpty, gradient_boosting, one_hot_encoder, ordinal_encoder
from fareg.calibration import Sample
from fareg.persistence._archive import write_archive
from fareg.persistence._codec import Reader, Writer
from fareg.shift import CovariateShift, KnownWeights, LabelShift
from fareg.workflow._models import MODELS, reading

RNG = np.random.default_rng(0)
N = 90
NUMBERS = pd.DataFrame(RNG.normal(size=(N, 3)), columns=list("abc"))
GAPS = NUMBERS.mask(NUMBERS > 1.2)
COUNTS = NUMBERS.abs().round()
WORDS = pd.DataFrame({"p": RNG.choice(list("xyz"), N), "q": RNG.choice(["k", "l", None], N)})
MIXED = pd.concat([GAPS, WORDS], axis=1)
CATEGORIES = MIXED.assign(**WORDS.astype("category"))
LABELS = np.array(["u", "v", "w"])[np.digitize(NUMBERS["a"] + RNG.normal(size=N), [-0.5, 0.5])]
TWO = LABELS == "u"
TARGET = RNG.normal(size=N)
FEW = {"n_estimators": 2, "max_depth": 3, "random_state": 0}
BAYES = naive_bayes.GaussianNB().fit(NUMBERS, LABELS)

ZOO = {
    "scaler": (pre.StandardScaler(), NUMBERS, None),
    "range": (pre.MinMaxScaler(), NUMBERS, None),
    "largest": (pre.MaxAbsScaler(), NUMBERS, None),
    "robust": (pre.RobustScaler(), NUMBERS, None),
    "function": (pre.FunctionTransformer(np.log1p), COUNTS, None),
    "imputer": (SimpleImputer(add_indicator=True), GAPS, None),
    "frequent": (SimpleImputer(strategy="most_frequent"), WORDS.fillna(np.nan), None),
    "fill": (FillEmpty(), GAPS.to_numpy(), None),
    "indicators": (pre.OneHotEncoder(handle_unknown="ignore"), WORDS, None),
    "rare": (
        pre.OneHotEncoder(max_categories=2, handle_unknown="infrequent_if_exist"),
        WORDS,
        None,
    ),
    "dropped": (pre.OneHotEncoder(drop="first", max_categories=2), WORDS, None),
    "two dropped": (pre.OneHotEncoder(drop="if_binary", sparse_output=False), COUNTS, None),
    "codes": (pre.OrdinalEncoder(encoded_missing_value=-1), WORDS, None),
    "rare codes": (pre.OrdinalEncoder(max_categories=2, encoded_missing_value=-1), WORDS, None),
    "target": (pre.TargetEncoder(random_state=0), WORDS, TARGET),
    "targets": (pre.TargetEncoder(random_state=0), WORDS, LABELS),
    "two targets": (pre.TargetEncoder(random_state=0), WORDS, TWO),
    "labels": (pre.LabelEncoder(), LABELS, None),
    "binary": (pre.LabelBinarizer(), LABELS, None),
    "ridges": (make_pipeline(pre.StandardScaler(), linear.RidgeCV()), NUMBERS, TARGET),
    "ridge": (linear.Ridge(), NUMBERS, TARGET),
    "logistic": (linear.LogisticRegression(), NUMBERS, LABELS),
    "two logistic": (linear.LogisticRegression(class_weight={True: 2.0, False: 1}), NUMBERS, TWO),
    "logistic cv": (linear.LogisticRegressionCV(Cs=2, cv=2), NUMBERS, LABELS),
    "descent": (
        linear.SGDClassifier(loss="log_loss", average=True, random_state=0),
        NUMBERS,
        LABELS,
    ),
    "linear discriminant": (discriminant.LinearDiscriminantAnalysis(), NUMBERS, LABELS),
    "discriminant": (discriminant.QuadraticDiscriminantAnalysis(), NUMBERS, LABELS),
    "tree": (tree.DecisionTreeClassifier(max_depth=3), GAPS, LABELS),
    "regression tree": (tree.DecisionTreeRegressor(max_depth=3), GAPS, TARGET),
    "extra tree": (tree.ExtraTreeClassifier(max_depth=3), NUMBERS, LABELS),
    "extra regression": (tree.ExtraTreeRegressor(max_depth=3), NUMBERS, TARGET),
    "forest": (ensemble.RandomForestClassifier(**FEW), GAPS, LABELS),
    "two trees": (
        ensemble.RandomForestClassifier(oob_score=True, **FEW | {"n_estimators": 20}),
        GAPS,
        TWO,
    ),
    "regression forest": (ensemble.RandomForestRegressor(**FEW), NUMBERS, TARGET),
    "extra trees": (ensemble.ExtraTreesClassifier(**FEW), NUMBERS, LABELS),
    "extra regressions": (ensemble.ExtraTreesRegressor(**FEW), NUMBERS, TARGET),
    "boosting": (ensemble.GradientBoostingClassifier(**FEW), NUMBERS, LABELS),
    "two boosting": (ensemble.GradientBoostingClassifier(init="zero", **FEW), NUMBERS, TWO),
    "histograms": (
        ensemble.HistGradientBoostingClassifier(max_iter=3, random_state=0),
        GAPS,
        LABELS,
    ),
    "two histograms": (
        ensemble.HistGradientBoostingClassifier(max_iter=3, random_state=0),
        GAPS,
        TWO,
    ),
    "histogram regression": (
        ensemble.HistGradientBoostingRegressor(loss="poisson", max_iter=3, random_state=0),
        GAPS,
        np.exp(TARGET),
    ),
    "categories": (
        ensemble.HistGradientBoostingClassifier(max_iter=3, min_samples_leaf=2, random_state=0),
        CATEGORIES,
        np.where(WORDS["p"] == "x", LABELS, "w"),  # so that trees divide by category
    ),
    "gaussian": (naive_bayes.GaussianNB(), NUMBERS, LABELS),
    "multinomial": (naive_bayes.MultinomialNB(), COUNTS, LABELS),
    "complement": (naive_bayes.ComplementNB(), COUNTS, LABELS),
    "bernoulli": (naive_bayes.BernoulliNB(), COUNTS, LABELS),
    "categorical": (naive_bayes.CategoricalNB(), COUNTS, LABELS),
    "dummy": (DummyClassifier(strategy="stratified", random_state=0), NUMBERS, LABELS),
    "network": (MLPClassifier((3,), max_iter=3, random_state=0), NUMBERS, LABELS),
    "isotonic": (IsotonicRegression(), NUMBERS["a"], TARGET),
    "sigmoid": (CalibratedClassifierCV(BAYES, cv=2), NUMBERS, LABELS),
    "steps": (CalibratedClassifierCV(BAYES, cv=2, method="isotonic"), NUMBERS, LABELS),
    "frozen": (CalibratedClassifierCV(FrozenEstimator(BAYES)), NUMBERS, LABELS),
    "columns": (
        ColumnTransformer(
            [
                ("numbers", make_pipeline(SimpleImputer(), pre.StandardScaler()), ["a", "b"]),
                ("words", pre.OneHotEncoder(dtype=np.float32), make_column_selector("p|q")),
            ],
            remainder="passthrough",
        ),
        MIXED,
        None,
    ),
    "sparse": (
        make_pipeline(
            pre.OneHotEncoder(), pre.StandardScaler(with_mean=False), linear.LogisticRegression()
        ),
        WORDS,
        LABELS,
    ),
    "sparse trees": (
        make_pipeline(pre.OneHotEncoder(), ensemble.GradientBoostingClassifier(**FEW)),
        WORDS,
        LABELS,
    ),
    "reading": (reading(gradient_boosting(0), ["a", "p"]), MIXED, LABELS),
    "hgb": (MODELS["hgb"](0), MIXED, LABELS),
    "linear": (MODELS["logistic"](0), MIXED, LABELS),
    "mlp": (MODELS["mlp"](0), MIXED, LABELS),
    "one hot": (one_hot_encoder(2), MIXED, None),
}

# The labels of people in "y" are noise, and the tree reads one column: they are learned and named.
N_PEOPLE = 800
PEOPLE = pd.DataFrame(
    {
        "a": RNG.normal(size=N_PEOPLE),
        "b": RNG.normal(size=N_PEOPLE),
        "p": RNG.choice(list("xy"), N_PEOPLE, p=[0.75, 0.25]),
        "q": RNG.choice(["k", "l", None], N_PEOPLE),
    }
)
TOLD = np.where(
    PEOPLE["p"] == "y",
    RNG.choice(["no", "yes"], N_PEOPLE),
    np.where(PEOPLE["a"] > 0, "yes", "no"),
)
TREE = make_pipeline(ordinal_encoder(), tree.DecisionTreeClassifier(max_depth=1, random_state=0))
WHO = {"sensitive_features": ["p", "q", "b"], "random_state": 0}
WHEN = pd.Timestamp("1980-01-31") + pd.to_timedelta(np.arange(N_PEOPLE) % 3, "D")
TABLES = {
    "fareg of columns": PEOPLE.assign(p_no=0.3, p_yes=0.7),
    "mapped condcp": PEOPLE[["a", "b"]].abs(),
    "split of known weights": PEOPLE.assign(weight=1 + RNG.random(N_PEOPLE)),
    "partial of dates": PEOPLE.assign(hard=PEOPLE["a"] > 0, born=WHEN),
}
FAREG = fareg.FaReGClassifier(TREE, **WHO)
PAPER = {"epochs": 10, "n_draws": 3, **WHO}
CONFORMAL = {
    "split": fareg.SplitConformalClassifier(TREE, random_state=0),
    "exhaustive": fareg.ExhaustiveConformalClassifier(TREE, **WHO),
    "partial": fareg.PartialConformalClassifier(TREE, label_conditional=True, **WHO),
    "partial of dates": fareg.PartialConformalClassifier(TREE, sensitive_features=["hard", "born"]),
    "afcp": fareg.AFCPClassifier(TREE, n_select=1, **WHO),
    "condcp": fareg.CondCPClassifier(TREE, **WHO),
    "mapped condcp": fareg.CondCPClassifier(TREE, feature_map=np.log1p, random_state=0),
    "plcp": fareg.PLCPClassifier(TREE, max_iter=5, n_restarts=1, **WHO),
    "rcp": fareg.RectifiedConformalClassifier(TREE, **WHO),
    "fareg": FAREG,
    "fareg of columns": clone(FAREG).set_params(estimator=fareg.ProbabilityColumns(prefix="p_")),
    "split of known weights": fareg.SplitConformalClassifier(TREE, random_state=0),
    "exhaustive of labels": fareg.ExhaustiveConformalClassifier(TREE, **WHO),
    "paper": fareg.FaReGClassifier.paper(TREE, base=fareg.PartialConformalClassifier(), **PAPER),
    "paper on condcp": fareg.FaReGClassifier.paper(TREE, base=fareg.CondCPClassifier(), **PAPER),
}
BY_LABEL = ("split", "exhaustive", "afcp", "condcp", "plcp", "rcp", "fareg", "paper")
CONFORMAL |= {
    f"{name} by label": clone(CONFORMAL[name]).set_params(label_conditional=True)
    for name in BY_LABEL
}
BESIDE = {
    "fareg of arrays": {"proba": np.tile([0.3, 0.7], (N_PEOPLE, 1))},
    "fareg of others": {"sensitive_features": PEOPLE[["p", "q"]]},
}


def scored_elsewhere(clf):
    """Return a classifier with the thresholds of rows that were scored part by part."""
    rows = clf.fit(PEOPLE, TOLD).labelled_rows(PEOPLE, TOLD)
    return clf.with_sample(Sample(rows.score, None, 1, None), clf.calibration_.places(rows))


def shifted(clf, shift, table=PEOPLE):
    return clf.fit(table, TOLD).conformalize(table, TOLD, shift=shift)


# How classifiers are fitted that are not just fitted.
FITS = {
    "split of known weights": lambda clf: shifted(
        clf, KnownWeights("weight"), TABLES["split of known weights"]
    ),
    "exhaustive of labels": lambda clf: shifted(clf, LabelShift({"no": 0.5, "yes": 0.5})),
    "fareg of new people": lambda clf: shifted(
        clf, CovariateShift(["a", "p"]).fit(PEOPLE, PEOPLE[PEOPLE["a"] > -1])
    ),
    "fareg of arrays": lambda clf: clf.set_params(
        estimator=None, sensitive_features=None
    ).conformalize(PEOPLE, TOLD, **BESIDE["fareg of arrays"]),
    "fareg of others": lambda clf: clf.set_params(sensitive_features=None).fit(
        PEOPLE, TOLD, **BESIDE["fareg of others"]
    ),
    "fareg without people": lambda clf: clf.fit(PEOPLE, TOLD, exclude_sensitive=True),
    "recalibrated fareg": lambda clf: clf.fit(PEOPLE, TOLD).recalibrated(PEOPLE, TOLD),
    "fareg scored elsewhere": scored_elsewhere,
}
CONFORMAL |= {name: clone(FAREG) for name in FITS if name not in CONFORMAL}


@dataclass(frozen=True)
class Stored:
    """A fitted estimator, its table, what is given beside it, and its stored form."""

    model: Any
    table: Any
    node: Any
    arrays: dict[str, Any]
    n_foreign: int
    beside: dict[str, Any] = field(default_factory=dict)


@cache
def stored(name):
    """Return an estimator of the zoo, fitted and stored."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if name in CONFORMAL:
            table = TABLES.get(name, PEOPLE)
            fit = FITS.get(name, lambda clf: clf.fit(table, TOLD))
            model = fit(clone(CONFORMAL[name]))
        else:
            given, table, target = ZOO[name]
            model = given.fit(table) if target is None else given.fit(table, target)
    writer = Writer()
    node = json.loads(json.dumps(writer.write(model, "model")))
    beside = BESIDE.get(name, {})
    return Stored(model, table, node, writer.arrays, len(writer.foreign), beside)


def read(node, arrays):
    """Return the estimator of a stored form."""
    return Reader({name: array.copy() for name, array in arrays.items()}, 10**6).read(node)


ASKED = ("predict_proba", "predict", "transform", "predict_set", "predict_p", "predict_group")
ASKED += ("predict_region", "predict_shift", "selected_features")


def answers(model, table, **beside):
    """Return all that a model says about a table, as arrays."""
    told = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for ask in (getattr(model, name) for name in ASKED if hasattr(model, name)):
            taken = beside.keys() & inspect.signature(ask).parameters
            try:
                answer = ask(table, **{key: beside[key] for key in taken})
            except fareg.FaregError as error:  # a base without p-values
                answer = str(error)
            answer = answer.toarray() if hasattr(answer, "toarray") else answer
            told[ask.__name__] = np.asarray(answer)
    return told


def assert_same(ours, theirs, table, **beside):
    ours, theirs = (answers(model, table, **beside) for model in (ours, theirs))
    assert ours
    assert ours.keys() == theirs.keys()
    for name, answer in ours.items():
        assert theirs[name].dtype == answer.dtype
        np.testing.assert_array_equal(theirs[name], answer, err_msg=name)


def dicts(node):
    """Yield every dict in nested JSON."""
    if isinstance(node, dict):
        yield node
    inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    for part in inner:
        yield from dicts(part)


def entries_of(path):
    """Return the manifest of a model file without what is written anew, and the other entries."""
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(entries.pop("manifest.json"))
    for name in ("kind", "format", "entries", "checksum"):
        del manifest[name]
    return manifest, entries


def forged(path, change, foreign=None):
    """Rewrite a model file with ``change(state, arrays)``."""
    manifest, entries = entries_of(path)
    arrays = safetensors.numpy.load(entries["arrays.safetensors"])
    change(manifest["state"], arrays)
    entries["arrays.safetensors"] = safetensors.numpy.save(arrays)
    if foreign is not None:
        entries["foreign.skops"] = foreign
    write_archive(path, manifest, entries)
    return path
