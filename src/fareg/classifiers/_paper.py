"""The published configuration of FaReG, with the hyperparameters of its data sets."""

from __future__ import annotations

from typing import Any

from fareg._validation import check_choice

COMMON: dict[str, Any] = {
    "construction": "union",
    "calibration": "reuse",
    "target": "coverage",
    "n_restarts": 1,
    "batch_size": 500,
    "hidden_sizes": (64, 32),
    "select_features": False,
    "significance": None,
    "cross_fit": False,
    "published_scale": True,
    "numbers": "codes",
}
OF_DATA: dict[str, dict[str, Any]] = {
    "synthetic": {
        "max_iter": 2000,
        "learning_rate": 1e-3,
        "beta": 2.0,
        "delta": 0.3,
        "n_draws": 20,
    },
    "nursery": {"max_iter": 800, "learning_rate": 1e-2, "beta": 0.1, "delta": 0.1, "n_draws": 100},
}


def published_settings(data: str) -> dict[str, Any]:
    """Return the parameters of the classifier and of its learner, as published for a data set."""
    return COMMON | OF_DATA[check_choice("data", data, OF_DATA)]
