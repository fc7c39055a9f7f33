"""Watch a classifier after deployment, find a change, and recalibrate.

Every week 400 labels arrive. From week 9 on, a measurement in one region is wrong half of the time.
Look at the monitor every week or every day: the probability of any false alarm, ever, is at most
5%. Rows from after the change give the same levels and groups new thresholds, and every promise
holds again. The region has no promise of its own until it is protected.

Run: ``python 08_watch_and_recalibrate.py [folder]``
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
from sklearn.frozen import FrozenEstimator

from fareg import CoverageMonitor, FaReGClassifier, Rule
from fareg.datasets import make_synthetic

rng = np.random.default_rng(0)
data = make_synthetic(16_000, random_state=0)
broken = (data.X["Region"] == data.X["Region"][0]) & (data.X.index >= 4000 + 8 * 400)
broken &= rng.random(len(broken)) < 0.5
data.X.loc[broken, "Feature 1"] = rng.random(broken.sum())

clf = FaReGClassifier(sensitive_features=list(data.sensitive), random_state=0)
clf.fit(data.X[:4000], data.y[:4000])

region = f"Region = {data.X['Region'][0]}"
monitor = CoverageMonitor(clf, groups=[region])
for week in range(1, 21):
    rows = slice(4000 + 400 * (week - 1), 4000 + 400 * week)
    monitor.update(data.X[rows], data.y[rows], [week] * 400)
print(monitor.summary().round(3).to_string())
for alarm in monitor.alarms:
    print(f"{alarm.stream}: alarm in week {alarm.when}, change in week {alarm.since_when}")

folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
monitor.report(folder / "watch.html")
monitor.save(folder / "watch.json")  # the next run goes on from here

# Rows from after the change calibrate, and later ones are watched.
since, region = 4000 + min(alarm.since for alarm in monitor.alarms), Rule.parse(region)
known, later = slice(since, 12_000), slice(12_000, None)
new = clf.recalibrated(data.X[known], data.y[known])  # keeps levels and groups
guard = FaReGClassifier(
    FrozenEstimator(clf.estimator_),
    sensitive_features=list(data.sensitive),
    protect=[region],  # a threshold of its own, and a promise
    random_state=0,
).conformalize(data.X[known], data.y[known])
for title, fixed in (("Recalibrated", new), (f"{region.text} is protected", guard)):
    monitor = CoverageMonitor(fixed, groups=[region]).update(data.X[later], data.y[later])
    print(f"\n{title}, {fixed.n_calibration_} rows calibrate:")
    print(monitor.summary().round(3).to_string())
