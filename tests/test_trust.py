"""Pipelines that everybody writes come back; what could run code or leave its memory is refused."""

import io
import json
import warnings
import zipfile

import numpy as np
import pandas as pd
import pytest
import scipy.stats
import skops.io
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.feature_selection import SelectKBest
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, Matern, WhiteKernel
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, make_scorer
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, SplineTransformer, scale
from sklearn.tree import export_graphviz
from typer.testing import CliRunner

import fareg
from fareg.cli import app
from fareg.persistence import _foreign
from fareg.persistence._familiar import UnfamiliarError, read_familiar
from fareg.persistence._recipes import Recipe, as_made, as_recipes
from fareg.persistence._trust import MODEL_PACKAGES, is_trusted
from saved_models import assert_same

C = "logisticregression__C"


def mixed(numbers, model):
    """Return a pipeline that chooses the columns of a mixed table by their type."""
    return make_pipeline(
        make_column_transformer(
            (
                make_pipeline(SimpleImputer(), numbers),
                make_column_selector(dtype_include=np.number),
            ),
            (
                OneHotEncoder(handle_unknown="ignore", dtype=np.float32),
                make_column_selector(dtype_exclude=[np.number, np.bool_]),
            ),
        ),
        model,
    )


PIPELINES = {
    "selected columns": mixed(FunctionTransformer(scale), LogisticRegression()),
    "neighbours in a k-d tree": mixed("passthrough", KNeighborsClassifier(algorithm="kd_tree")),
    "neighbours in a ball tree": mixed(
        "passthrough", KNeighborsClassifier(algorithm="ball_tree", metric="canberra")
    ),
    "neighbours of a weighted distance": mixed(
        "passthrough", KNeighborsClassifier(algorithm="kd_tree", p=3)
    ),
    "splines": mixed(SplineTransformer(extrapolation="linear"), LogisticRegression()),
    "best columns": make_pipeline(
        mixed("passthrough", SelectKBest(k=3)), LogisticRegression(max_iter=300)
    ),
    "random search": RandomizedSearchCV(
        mixed("passthrough", LogisticRegression()),
        [{C: scipy.stats.loguniform(0.1, 10)}, {C: scipy.stats.randint(low=1, high=4)}],
        n_iter=2,
        cv=2,
        random_state=0,
    ),
    "grid search": GridSearchCV(
        mixed("passthrough", LogisticRegression()),
        {C: [1, 2]},
        cv=2,
        scoring=make_scorer(log_loss, response_method="predict_proba", greater_is_better=False),
    ),
    "gaussian process": mixed(
        "passthrough", GaussianProcessClassifier(1.0 * RBF() + Matern() * WhiteKernel())
    ),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", PIPELINES)
def test_pipelines_that_everybody_writes_come_back_to_the_bit(name, patients, tmp_path):
    X, y = patients
    clf = fareg.SplitConformalClassifier(PIPELINES[name], random_state=0).fit(X[:300], y[:300])
    with warnings.catch_warnings():
        warnings.simplefilter("error", fareg.FaregWarning)
        fareg.save(clf, tmp_path / "m.fareg")
    back = fareg.load(tmp_path / "m.fareg")
    assert_same(clf, back, X[300:])
    np.testing.assert_array_equal(
        clf.estimator_.predict_proba(X[300:]), back.estimator_.predict_proba(X[300:])
    )


def test_a_search_comes_back_with_its_distributions():
    search = PIPELINES["random search"]
    packed, names = _foreign.dump(search)
    assert names == []
    drawn = [d[C].rvs(random_state=0) for d in _foreign.load(packed).param_distributions]
    assert drawn == [d[C].rvs(random_state=0) for d in search.param_distributions]


@pytest.mark.parametrize("metric", ["minkowski", "seuclidean", "mahalanobis", "haversine"])
def test_search_trees_come_back_with_their_metric(metric):
    data = np.random.default_rng(0).normal(size=(60, 2))
    parameters = {
        "minkowski": {"w": np.array([1.0, 2.0])},
        "seuclidean": {"V": np.array([1.0, 2.0])},
        "mahalanobis": {"VI": np.array([[2.0, 0.5], [0.5, 1.0]])},
    }
    model = KNeighborsClassifier(
        algorithm="ball_tree", metric=metric, metric_params=parameters.get(metric)
    ).fit(data, np.arange(60) % 2)
    back = _foreign.load(_foreign.dump(model)[0])
    for ours, theirs in zip(model.kneighbors(data), back.kneighbors(data), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    "name",
    [
        "builtins.eval",
        "os.system",
        "joblib.memory.Memory",
        "numpy.load",
        "numpy.void",
        "sklearn.compose._column_transformer.ColumnTransformer.fit",  # a method
        "sklearn.datasets._base.load_files",  # reads files
        "sklearn.metrics._dist_metrics.EuclideanDistance64",  # compiled
        "sklearn.metrics._scorer.partial",  # not defined there
        "sklearn.model_selection._validation.cross_validate",  # runs what it is given
        "sklearn.neighbors._kd_tree.KDTree",  # compiled
        "sklearn.pipeline.np",
        "sklearn.tree._export.export_graphviz",  # writes files
        "sklearn.utils._testing.assert_run_python_script_without_output",
        "sklearn.utils.parallel.Parallel",
        "scipy.stats._continuous_distns.uniform_gen",  # runs its own state as code
        "scipy.stats._distn_infrastructure.rv_continuous_frozen",
        "no_dots",
    ],
)
def test_what_could_do_more_than_compute_is_not_trusted(name):
    assert not is_trusted(name)


def test_every_estimator_in_python_is_trusted_by_the_rule():
    from sklearn.utils import all_estimators

    own = {cls for _, cls in all_estimators()}
    named = [f"{cls.__module__}.{cls.__qualname__}" for cls in own]
    rooms = {name.split(".")[1] for name in named}
    assert rooms <= MODEL_PACKAGES
    assert [name for name in named if not is_trusted(name)] == []


BOOSTING = HistGradientBoostingClassifier(max_iter=2, min_samples_leaf=1, random_state=0)
ROUNDS = BOOSTING.fit(np.arange(8.0)[:, None], np.arange(8) < 4)._predictors
TREES = as_recipes(ROUNDS).arguments


def test_what_is_familiar_is_read_as_skops_reads_it():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=60), "b": pd.Categorical(rng.choice(list("xyz"), 60))})
    for y in (X["a"] > 0, rng.choice(["u", "v", "w"], 60), rng.integers(0, 3, 60)):
        boosting = HistGradientBoostingClassifier(max_iter=5, categorical_features="from_dtype")
        for model in (boosting, mixed(FunctionTransformer(scale), LogisticRegression())):
            model.fit(X, y)
            packed, names = _foreign.dump({"fitted": model, "given": None})
            again = as_made(read_familiar(packed))["fitted"]
            by_skops = as_made(
                skops.io.loads(packed, trusted=skops.io.get_untrusted_types(data=packed))
            )
            assert names == []
            for other in (again, by_skops["fitted"]):
                np.testing.assert_array_equal(other.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize("thing", [export_graphviz, KNeighborsClassifier.fit, {1.5: 0}, {1, 2}])
def test_what_is_not_familiar_is_left_to_skops(thing):
    with pytest.raises((UnfamiliarError, ValueError)):
        read_familiar(skops.io.dumps([thing]))


def test_a_familiar_file_that_contradicts_itself_is_refused():
    packed = skops.io.dumps(
        {"call": [log_loss], "rng": np.random.default_rng(0), "loss": BOOSTING._loss}
    )

    def keys(schema):  # the types of the keys are those of the node with the same id
        schema["content"] = {
            "call": schema["content"]["call"],
            "d": dict(schema["content"]["rng"]["content"]["seed_seq"]),
        }
        schema["key_types"]["content"].pop()
        schema["content"]["d"]["key_types"]["__id__"] = schema["content"]["call"]["__id__"]

    def generator(schema):
        state = schema["content"]["rng"]["content"]["bit_generator"]["content"]
        state["bit_generator"]["content"] = '"MT19937"'

    def pool(schema):
        schema["content"]["rng"]["content"]["seed_seq"]["content"]["pool_size"] = {
            **schema["content"]["rng"]["content"]["seed_seq"]["content"]["pool_size"],
            "content": "1000000000",
            "__id__": 1,
        }

    read_familiar(packed)
    for change in (keys, generator, pool):
        with pytest.raises(ValueError, match="contradict each other"):
            read_familiar(rewritten(packed, change))


def rewritten(packed, change):
    """Return a skops file whose schema was changed by hand."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(packed)) as source, zipfile.ZipFile(out, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            if name == "schema.json":
                schema = json.loads(content)
                change(schema)
                content = json.dumps(schema)
            target.writestr(name, content)
    return out.getvalue()


def test_a_distribution_with_code_in_it_is_refused(tmp_path):
    packed = skops.io.dumps({"C": scipy.stats.uniform(0, 1)})
    mark = tmp_path / "ran"

    def change(schema):
        text = json.dumps(schema)
        assert "_parse_arg_template" in text
        dist = schema["content"]["C"]["content"]["content"]["dist"]["content"]["content"]
        dist["_parse_arg_template"]["content"] = json.dumps(f"open({str(mark)!r}, 'w')")

    with pytest.raises(fareg.FaregError, match=r"not trusted: scipy\.stats"):
        _foreign.load(rewritten(packed, change))
    assert not mark.exists()


def test_a_file_that_writes_files_is_refused(tmp_path):
    model = FunctionTransformer(export_graphviz, kw_args={"out_file": str(tmp_path / "f")})
    with pytest.raises(fareg.FaregError, match="export_graphviz"):
        _foreign.load(skops.io.dumps(model))


def test_functions_are_not_called_while_a_file_is_read():
    packed = skops.io.dumps({"call": log_loss, "with": ([0, 1], [0.5, 0.5])})
    assert _foreign.load(packed)["call"] is log_loss

    def change(schema):
        call = schema["content"]["call"]
        call["__loader__"] = "ConstructorFromReduceNode"
        call["content"] = schema["content"]["with"]

    with pytest.raises(ValueError, match="log_loss stands where a class belongs"):
        _foreign.load(rewritten(packed, change))


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("distribution", {"name": "os", "args": (), "kwds": {}}),
        ("distribution", {"name": "uniform", "args": ("0", "1"), "kwds": {}}),
        ("spline", {"t": np.arange(9.0), "c": np.ones(2), "k": 3, "extrapolate": True, "axis": 0}),
        (
            "KDTree",
            {
                "data": np.ones((4, 2)),
                "leaf_size": 2,
                "metric": "euclidean",
                "parameters": {"p": 1},
            },
        ),
        (
            "BallTree",
            {
                "data": np.ones((4, 2)),
                "leaf_size": 2,
                "metric": "seuclidean",
                "parameters": {"V": np.ones(1)},
            },
        ),
        ("eval", {}),
        *(
            ("boosting", {**TREES, name: value})
            for name, value in {
                "n_nodes": np.array([[3], [1]]),
                "n_bitsets": np.array([[0]]),
                "nodes": np.zeros(4),
                "raw_left_cat_bitsets": np.zeros((1, 8), np.uint32),
            }.items()
        ),
        ("boosting", {**TREES, "n_nodes": np.array([[-1], [5]])}),
    ],
)
def test_recipes_of_nothing_that_is_stored_are_refused(kind, arguments):
    packed = skops.io.dumps([Recipe(kind, arguments)])
    with pytest.raises((ValueError, KeyError)):
        _foreign.load(packed)


OWN = """
from sklearn.linear_model import LogisticRegression

class Own(LogisticRegression):
    pass
"""


def test_the_shell_trusts_types_that_are_named(tmp_path, monkeypatch):
    (tmp_path / "own_model.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    from own_model import Own

    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(400, 2)), columns=["a", "b"])
    y = (X["a"] + rng.normal(size=400) > 0).astype(int)
    clf = fareg.SplitConformalClassifier(Own(), random_state=0).fit(X, y)
    with pytest.warns(fareg.FaregWarning, match="own_model.Own"):
        fareg.save(clf, tmp_path / "m.fareg")
    (tmp_path / "parts").mkdir()
    X.assign(y=y).to_parquet(tmp_path / "parts" / "rows.parquet")

    def run(command, *arguments):
        done = CliRunner().invoke(app, [command, *map(str, arguments)])
        return done.exit_code, " ".join(done.output.split())

    model, table = tmp_path / "m.fareg", tmp_path / "parts" / "rows.parquet"
    assert "needs --trust own_model.Own" in run("info", model)[1]
    for command in (
        ("predict", model, table, "--out", tmp_path / "sets.csv"),
        ("predict", model, tmp_path / "parts", "--out", tmp_path / "sets", "--jobs", "1"),
        ("audit", table, "--target", "y", "--model", model),
    ):
        code, words = run(*command)
        assert code == 2
        assert words.startswith("Error: the estimator holds types that are not trusted")
        assert words.endswith("add --trust own_model.Own")
        code, words = run(*command, "--trust", "own_model.Own")
        assert code == 0, words
