"""A small table of people, and rules about them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fareg.groups import Condition, Rule


def people(n: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "sex": pd.Series(rng.choice(["F", "M"], n).tolist(), dtype=object),
            "race": pd.Series(rng.choice(list("abcd"), n).tolist(), dtype=object),
            "edu": pd.Series(rng.choice(list("pqrst"), n).tolist(), dtype=object),
            "age": rng.integers(18, 63, n).astype(float),
        }
    )


def is_level(feature: str, level: str) -> Condition:
    return Condition(feature, levels=(level,))


def rule_of(*alternatives: tuple[Condition, ...]) -> Rule:
    features = tuple({c.feature for conditions in alternatives for c in conditions})
    return Rule("", features, 1.0, ()).part(tuple(alternatives))
