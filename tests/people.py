"""A small table of people, and rules about them."""

from __future__ import annotations

import numpy as np
import pandas as pd


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
