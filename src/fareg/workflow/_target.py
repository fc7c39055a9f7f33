"""The column of labels: what may be one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from fareg._validation import InvalidInputError
from fareg.workflow._tables import column_kinds

MIN_ROWS = 20


def check_target(target: pd.Series) -> Any:
    """Return labels, after checks that they are labels."""
    missing = int(target.isna().sum())
    if missing:
        raise InvalidInputError(
            f"the target {target.name} has {missing} missing values in {len(target)} rows; "
            "fill them or drop these rows"
        )
    kind = column_kinds(target.to_frame())[str(target.name)]
    distinct = target.nunique()
    if distinct < 2:
        raise InvalidInputError(
            f"the target {target.name} has one class only ({target.iloc[0]}); nothing to predict"
        )
    if len(target) < MIN_ROWS:
        raise InvalidInputError(
            f"the table has {len(target)} rows; at least {MIN_ROWS} are needed to train, "
            "calibrate and test"
        )
    if kind == "date" or (distinct > 20 and distinct > len(target) / 2):
        raise InvalidInputError(
            f"the target {target.name} has {distinct} distinct values in {len(target)} rows; "
            "choose a column of classes, or group its values"
        )
    if kind == "number" and target.dtype.kind == "f":
        fractions = target[target % 1 != 0]
        if len(fractions):
            raise InvalidInputError(
                f"the target {target.name} holds fractions such as {fractions.iloc[0]}; choose a "
                "column of classes, or group its values"
            )
        return target.to_numpy(np.int64)
    return target.to_numpy() if kind == "number" else target.astype(str).to_numpy(dtype=object)
