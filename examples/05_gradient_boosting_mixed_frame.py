"""LightGBM and XGBoost on a frame of text, categories, numbers and missing values."""

import lightgbm
import numpy as np
import pandas as pd
import xgboost
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder

from fareg import FaReGClassifier
from fareg.metrics import coverage_score, mean_set_size

rng = np.random.default_rng(0)
n = 6000
X = pd.DataFrame(
    {
        "region": rng.choice(["north", "south", "east"], n),
        "plan": pd.Categorical(rng.choice(["basic", "plus"], n)),
        "age": rng.integers(18, 90, n).astype(float),
        "income": rng.lognormal(10, 1, n),
        "member": rng.random(n) < 0.5,
    }
)
# hard to predict: members in the south
hard = (X["region"] == "south") & X["member"]
signal = X["age"] > 50
y = np.where(rng.random(n) < np.where(hard, 0.45, 0.03), ~signal, signal).astype(int)
X.loc[rng.random(n) < 0.1, "income"] = np.nan
X.loc[rng.random(n) < 0.1, "region"] = None

levels = OrdinalEncoder(
    handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-2
)
# the models see neither region nor membership; a group may still be made of these
encode = make_column_transformer((levels, ["plan"]), ("passthrough", ["age", "income"]))
models = {
    "LightGBM": lightgbm.LGBMClassifier(n_estimators=30, verbose=-1, random_state=0),
    "XGBoost": xgboost.XGBClassifier(n_estimators=30, max_depth=3, random_state=0),
}
for name, model in models.items():
    clf = FaReGClassifier(
        make_pipeline(encode, model),
        sensitive_features=["region", "plan", "member"],
        random_state=0,
    )
    clf.fit(X[:5000], y[:5000])
    sets = clf.predict_set(X[5000:])
    print(
        f"{name}: group {clf.groups_['rule'].iloc[0]!r}, "
        f"coverage {coverage_score(y[5000:], sets):.3f}, {mean_set_size(sets):.2f} labels per set"
    )
    clf.plot_levels(X[5000:], y[5000:]).savefig(f"{name}.png")
