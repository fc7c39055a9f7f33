"""One fitted estimator, at least, of every class that a model file holds without trust."""

import json
import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.discriminant_analysis import (
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import (
    LogisticRegression,
    LogisticRegressionCV,
    Ridge,
    RidgeCV,
    SGDClassifier,
)
from sklearn.naive_bayes import BernoulliNB, CategoricalNB, ComplementNB, GaussianNB, MultinomialNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    LabelBinarizer,
    LabelEncoder,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    RobustScaler,
    StandardScaler,
    TargetEncoder,
)
from sklearn.tree import (
    DecisionTreeClassifier,
    DecisionTreeRegressor,
    ExtraTreeClassifier,
    ExtraTreeRegressor,
)

import fareg
from fareg._encoding import FillEmpty, gradient_boosting, one_hot_encoder, ordinal_encoder
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

ZOO = {
    "scaler": (StandardScaler(), NUMBERS, None),
    "range": (MinMaxScaler(), NUMBERS, None),
    "largest": (MaxAbsScaler(), NUMBERS, None),
    "robust": (RobustScaler(), NUMBERS, None),
    "function": (FunctionTransformer(np.log1p), COUNTS, None),
    "imputer": (SimpleImputer(add_indicator=True), GAPS, None),
    "frequent": (SimpleImputer(strategy="most_frequent"), WORDS.fillna(np.nan), None),
    "fill": (FillEmpty(), GAPS.to_numpy(), None),
    "indicators": (OneHotEncoder(handle_unknown="ignore"), WORDS, None),
    "rare": (OneHotEncoder(max_categories=2, handle_unknown="infrequent_if_exist"), WORDS, None),
    "dropped": (OneHotEncoder(drop="first", max_categories=2), WORDS, None),
    "two dropped": (OneHotEncoder(drop="if_binary", sparse_output=False), COUNTS, None),
    "codes": (OrdinalEncoder(encoded_missing_value=-1), WORDS, None),
    "rare codes": (OrdinalEncoder(max_categories=2, encoded_missing_value=-1), WORDS, None),
    "target": (TargetEncoder(random_state=0), WORDS, TARGET),
    "targets": (TargetEncoder(random_state=0), WORDS, LABELS),
    "two targets": (TargetEncoder(random_state=0), WORDS, TWO),
    "labels": (LabelEncoder(), LABELS, None),
    "binary": (LabelBinarizer(), LABELS, None),
    "ridges": (make_pipeline(StandardScaler(), RidgeCV()), NUMBERS, TARGET),
    "ridge": (Ridge(), NUMBERS, TARGET),
    "logistic": (LogisticRegression(), NUMBERS, LABELS),
    "two logistic": (LogisticRegression(class_weight={True: 2.0, False: 1}), NUMBERS, TWO),
    "logistic cv": (LogisticRegressionCV(Cs=2, cv=2), NUMBERS, LABELS),
    "descent": (SGDClassifier(loss="log_loss", average=True, random_state=0), NUMBERS, LABELS),
    "linear discriminant": (LinearDiscriminantAnalysis(), NUMBERS, LABELS),
    "discriminant": (QuadraticDiscriminantAnalysis(), NUMBERS, LABELS),
    "tree": (DecisionTreeClassifier(max_depth=3), GAPS, LABELS),
    "regression tree": (DecisionTreeRegressor(max_depth=3), GAPS, TARGET),
    "extra tree": (ExtraTreeClassifier(max_depth=3), NUMBERS, LABELS),
    "extra regression": (ExtraTreeRegressor(max_depth=3), NUMBERS, TARGET),
    "forest": (RandomForestClassifier(**FEW), GAPS, LABELS),
    "two trees": (RandomForestClassifier(oob_score=True, **FEW | {"n_estimators": 20}), GAPS, TWO),
    "regression forest": (RandomForestRegressor(**FEW), NUMBERS, TARGET),
    "extra trees": (ExtraTreesClassifier(**FEW), NUMBERS, LABELS),
    "extra regressions": (ExtraTreesRegressor(**FEW), NUMBERS, TARGET),
    "boosting": (GradientBoostingClassifier(**FEW), NUMBERS, LABELS),
    "two boosting": (GradientBoostingClassifier(init="zero", **FEW), NUMBERS, TWO),
    "histograms": (HistGradientBoostingClassifier(max_iter=3, random_state=0), GAPS, LABELS),
    "two histograms": (HistGradientBoostingClassifier(max_iter=3, random_state=0), GAPS, TWO),
    "histogram regression": (
        HistGradientBoostingRegressor(loss="poisson", max_iter=3, random_state=0),
        GAPS,
        np.exp(TARGET),
    ),
    "categories": (
        HistGradientBoostingClassifier(max_iter=3, min_samples_leaf=2, random_state=0),
        CATEGORIES,
        np.where(WORDS["p"] == "x", LABELS, "w"),  # so that trees divide by category
    ),
    "gaussian": (GaussianNB(), NUMBERS, LABELS),
    "multinomial": (MultinomialNB(), COUNTS, LABELS),
    "complement": (ComplementNB(), COUNTS, LABELS),
    "bernoulli": (BernoulliNB(), COUNTS, LABELS),
    "categorical": (CategoricalNB(), COUNTS, LABELS),
    "dummy": (DummyClassifier(strategy="stratified", random_state=0), NUMBERS, LABELS),
    "network": (MLPClassifier((3,), max_iter=3, random_state=0), NUMBERS, LABELS),
    "isotonic": (IsotonicRegression(), NUMBERS["a"], TARGET),
    "sigmoid": (CalibratedClassifierCV(GaussianNB(), cv=2), NUMBERS, LABELS),
    "steps": (
        CalibratedClassifierCV(GaussianNB(), cv=2, method="isotonic"),
        NUMBERS,
        LABELS,
    ),
    "frozen": (
        CalibratedClassifierCV(FrozenEstimator(GaussianNB().fit(NUMBERS, LABELS))),
        NUMBERS,
        LABELS,
    ),
    "columns": (
        ColumnTransformer(
            [
                ("numbers", make_pipeline(SimpleImputer(), StandardScaler()), ["a", "b"]),
                ("words", OneHotEncoder(dtype=np.float32), make_column_selector("p|q")),
            ],
            remainder="passthrough",
        ),
        MIXED,
        None,
    ),
    "sparse": (
        make_pipeline(OneHotEncoder(), StandardScaler(with_mean=False), LogisticRegression()),
        WORDS,
        LABELS,
    ),
    "sparse trees": (
        make_pipeline(OneHotEncoder(), GradientBoostingClassifier(**FEW)),
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
N_PEOPLE = 1000
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
TREE = make_pipeline(ordinal_encoder(), DecisionTreeClassifier(max_depth=1, random_state=0))
WHO = {"sensitive_features": ["p", "q", "b"], "random_state": 0}
TABLES = {
    "fareg of columns": PEOPLE.assign(p_no=0.3, p_yes=0.7),
    "mapped condcp": PEOPLE[["a", "b"]].abs(),
    "split of known weights": PEOPLE.assign(weight=1 + RNG.random(N_PEOPLE)),
}
SHIFTS = {
    "split of known weights": KnownWeights("weight"),
    "exhaustive of labels": LabelShift({"no": 0.5, "yes": 0.5}),
    "fareg of new people": CovariateShift(["a", "p"]),
}
CONFORMAL = {
    "split": fareg.SplitConformalClassifier(TREE, random_state=0),
    "exhaustive": fareg.ExhaustiveConformalClassifier(TREE, **WHO),
    "partial": fareg.PartialConformalClassifier(TREE, label_conditional=True, **WHO),
    "afcp": fareg.AFCPClassifier(TREE, n_select=1, **WHO),
    "condcp": fareg.CondCPClassifier(TREE, **WHO),
    "mapped condcp": fareg.CondCPClassifier(TREE, feature_map=np.log1p, random_state=0),
    "plcp": fareg.PLCPClassifier(TREE, max_iter=5, n_restarts=1, **WHO),
    "rcp": fareg.RectifiedConformalClassifier(TREE, **WHO),
    "fareg": fareg.FaReGClassifier(TREE, **WHO),
    "fareg by label": fareg.FaReGClassifier(TREE, label_conditional=True, **WHO),
    "fareg of columns": fareg.FaReGClassifier(fareg.ProbabilityColumns(prefix="p_"), **WHO),
    "split of known weights": fareg.SplitConformalClassifier(TREE, random_state=0),
    "exhaustive of labels": fareg.ExhaustiveConformalClassifier(TREE, **WHO),
    "fareg of new people": fareg.FaReGClassifier(TREE, **WHO),
    "paper": fareg.FaReGClassifier.paper(
        TREE, epochs=10, n_draws=3, base=fareg.PartialConformalClassifier(), **WHO
    ),
}


@dataclass(frozen=True)
class Stored:
    """A fitted estimator, its table, and its stored form."""

    model: Any
    table: Any
    node: Any
    arrays: dict[str, Any]
    n_foreign: int


@cache
def stored(name):
    """Return an estimator of the zoo, fitted and stored."""
    if name in CONFORMAL:
        model, target = CONFORMAL[name], TOLD
        table = TABLES.get(name, PEOPLE)
    else:
        model, table, target = ZOO[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(table) if target is None else model.fit(table, target)
        if (shift := SHIFTS.get(name)) is not None:
            if isinstance(shift, CovariateShift):
                shift.fit(table, table[table["a"] > -1])
            model.conformalize(table, target, shift=shift)
    writer = Writer()
    node = json.loads(json.dumps(writer.write(model, "model")))
    return Stored(model, table, node, writer.arrays, len(writer.foreign))


def read(node, arrays):
    """Return the estimator of a stored form."""
    return Reader({name: array.copy() for name, array in arrays.items()}, 10**6).read(node)


def answers(model, table):
    """Return all that a model says about a table, as arrays."""
    told = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("predict_proba", "predict", "transform", "predict_set", "predict_p"):
            if hasattr(model, name):
                answer = getattr(model, name)(table)
                answer = answer.toarray() if hasattr(answer, "toarray") else answer
                told[name] = np.asarray(answer)
    return told
