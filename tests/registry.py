"""The classifiers of the package, for tests that run all entries of the registry."""

import fareg
from fareg.classifiers import CLASSIFIERS

# settings that make training short, for tests that only need it to finish
SHORT = {
    fareg.PLCPClassifier: {"max_iter": 2, "n_restarts": 1},
}

# methods that learn from some of the rows, and what they learn
LEARNERS = {
    fareg.FaReGClassifier: "look for a group",
    fareg.PLCPClassifier: "learn regions from",
    fareg.RectifiedConformalClassifier: "learn a quantile from",
}


def short(cls, *args, **parameters):
    """Return a classifier that trains for a moment."""
    return cls(*args, **{**SHORT.get(cls, {}), **parameters})


def short_classifiers():
    """Return one classifier of each class by its name, and the published method."""
    made = {cls.__name__: short(cls) for cls in CLASSIFIERS}
    return {**made, "paper": fareg.FaReGClassifier.paper(epochs=3, n_draws=2)}


def batch_of(clf, X, **beside):
    """Return the rows of a call as calibrations see them."""
    (batch,) = clf._batches(X, **beside)
    return batch
