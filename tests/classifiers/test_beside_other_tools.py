"""Sets among the metrics of fairlearn, model files among the models of MLflow."""

import numpy as np
import pandas as pd
import pytest
from fairlearn.metrics import MetricFrame

import fareg
from fareg import persistence
from fareg.metrics import coverage_by_group, mean_set_size, set_metrics


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.dirichlet([1, 1, 1], 400), columns=list("abc"))
    X["g"] = rng.choice(["u", "v", "w"], 400)
    return X, np.array(list("abc"))[rng.integers(3, size=400)]


@pytest.fixture(scope="module")
def clf(rows):
    model = fareg.ProbabilityColumns({label: label for label in "abc"})
    return fareg.SplitConformalClassifier(model, random_state=0).fit(*rows)


@pytest.mark.parametrize("as_frame", [True, False])
def test_a_metric_frame_has_the_coverage_of_each_group(rows, clf, as_frame):
    X, y = rows
    sets = clf.predict_set(X)
    given = pd.DataFrame(sets, columns=clf.classes_, index=X.index[::-1]) if as_frame else sets
    told = MetricFrame(
        metrics=set_metrics(clf.classes_), y_true=y, y_pred=given, sensitive_features=X["g"]
    )
    hits = fareg.metrics.is_covered(y, sets, classes=clf.classes_)
    expected = coverage_by_group(X, hits, features=["g"]).set_index("group")["coverage"]
    for level, row in told.by_group.iterrows():
        assert row["coverage"] == expected[f"g={level}"]
        assert row["mean_set_size"] == mean_set_size(sets[(X["g"] == level).to_numpy()])
    assert told.overall["coverage"] == hits.mean()


def test_a_model_file_answers_behind_the_generic_interface(rows, clf, tmp_path):
    X, _ = rows
    fareg.save(clf, tmp_path / "m.fareg")
    served = persistence._load_pyfunc(tmp_path / "m.fareg", {"trusted": []})
    pd.testing.assert_frame_equal(served.predict(X), clf.predict_table(X))


@pytest.mark.parametrize("format", ["cloudpickle", "skops"])
def test_mlflow_stores_classifiers_in_its_own_formats(rows, clf, tmp_path, format):
    import mlflow.sklearn
    from skops.io import dumps, get_untrusted_types

    path, options = tmp_path / "m", {"serialization_format": format, "pip_requirements": ["fareg"]}
    if format == "skops":
        options["skops_trusted_types"] = get_untrusted_types(data=dumps(clf))
    mlflow.sklearn.save_model(clf, path, **options)
    np.testing.assert_array_equal(
        mlflow.sklearn.load_model(path).predict_set(rows[0]), clf.predict_set(rows[0])
    )
