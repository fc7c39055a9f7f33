"""Data with a known hard group: generators, and readers of files on disk.

Each returns a `Dataset`: features, labels, the names of the sensitive columns and the group that
is truly harder to classify. Nothing is downloaded.
"""

from fareg.datasets._acs import PAPER_STATES, acs_income_files, load_acs_income
from fareg.datasets._dataset import Dataset, inject_label_noise
from fareg.datasets._nursery import load_nursery, make_nursery_experiment
from fareg.datasets._synthetic import make_metric_benchmark, make_synthetic

__all__ = [
    "PAPER_STATES",
    "Dataset",
    "acs_income_files",
    "inject_label_noise",
    "load_acs_income",
    "load_nursery",
    "make_metric_benchmark",
    "make_nursery_experiment",
    "make_synthetic",
]
