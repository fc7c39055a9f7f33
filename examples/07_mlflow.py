"""Track a conformal classifier with MLflow: numbers, report and a model file without pickle.

This needs mlflow or mlflow-skinny, version 3 or later. ``mlflow.sklearn.log_model(clf)`` works
too, but it stores a pickle (or skops, on request), and its generic interface offers no sets.
"""

import os
import tempfile
from pathlib import Path

import mlflow

import fareg
from fareg.datasets import make_synthetic

folder = Path(tempfile.mkdtemp())
os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"  # a folder stands for your tracking server here
mlflow.set_tracking_uri((folder / "runs").as_uri())

data = make_synthetic(2000, random_state=0)
clf = fareg.SplitConformalClassifier(random_state=0).fit(data.X[:1500], data.y[:1500])
X_new, y_new = data.X[1500:], data.y[1500:]

with mlflow.start_run() as run:
    mlflow.log_params({"confidence_level": clf.confidence_level, "method": type(clf).__name__})
    comparison = clf.report(X_new, y_new, folder / "report.html", measures=False)
    mlflow.log_metrics({f"test_{name}": value for name, value in comparison.after.items()})
    mlflow.log_artifact(str(folder / "report.html"))
    # the model is a .fareg file, which fareg.persistence loads: nothing in it can run
    fareg.save(clf, folder / "model.fareg")
    model = mlflow.pyfunc.log_model(
        name="sets",
        loader_module="fareg.persistence",
        data_path=str(folder / "model.fareg"),
        pip_requirements=[f"fareg=={fareg.__version__}"],
    )

served = mlflow.pyfunc.load_model(model.model_uri)
answers = served.predict(X_new)
assert answers["set"].equals(clf.predict_table(X_new)["set"])
print(answers.head(3).to_string(index=False))
print(
    {name: round(value, 3) for name, value in mlflow.get_run(run.info.run_id).data.metrics.items()}
)
