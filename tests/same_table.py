"""One table in many libraries and dtypes, and its canonical columns."""

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

DAY, NOON = dt.date(2024, 2, 29), dt.datetime(1969, 7, 20, 12, 30)
COLUMNS = {
    "text": ["Red", None, "Blue", "Red"],
    "flag": [True, False, None, True],
    "count": [3, None, -7, 0],
    "number": [0.5, -0.0, None, 1e9],
    "day": [DAY, None, dt.date(1901, 1, 1), DAY],
    "moment": [NOON, dt.datetime(2024, 1, 1), None, NOON],
    "span": [dt.timedelta(hours=1), None, dt.timedelta(days=-2), dt.timedelta(seconds=0.5)],
}
EPOCH = dt.datetime(1970, 1, 1)
EXPECTED = pd.DataFrame(
    {
        "text": pd.Series(["Red", None, "Blue", "Red"], dtype=object),
        "flag": pd.Series(["True", "False", None, "True"], dtype=object),
        "count": [3.0, np.nan, -7.0, 0.0],
        "number": [0.5, -0.0, np.nan, 1e9],
        "day": np.array(["2024-02-29", "NaT", "1901-01-01", "2024-02-29"], "datetime64[us]"),
        "moment": np.array([NOON, "2024-01-01", "NaT", NOON], "datetime64[us]"),
        "span": [3600.0, np.nan, -172800.0, 0.5],
    }
)


def pandas_objects():
    return pd.DataFrame({name: pd.Series(v, dtype=object) for name, v in COLUMNS.items()})


def pandas_nullable():
    frame = pandas_objects()
    dtypes = {
        "text": "string",
        "flag": "boolean",
        "count": "Int64",
        "number": "Float64",
        "day": "datetime64[s]",
        "moment": "datetime64[us]",
        "span": "timedelta64[ms]",
    }
    return frame.astype(dtypes)


def pandas_categories():
    return pandas_objects().astype({"text": "category", "flag": "category", "count": "category"})


def arrow_table():
    return pa.table({**COLUMNS, "number": pa.array(COLUMNS["number"], pa.float64())})


def pandas_arrow():
    return arrow_table().to_pandas(types_mapper=pd.ArrowDtype)


def polars_plain():
    return pl.DataFrame(COLUMNS)


def polars_categorical():
    return polars_plain().with_columns(
        pl.col("text").cast(pl.Categorical), pl.col("count").cast(pl.Int8)
    )


def polars_enum():
    return polars_plain().with_columns(pl.col("text").cast(pl.Enum(["Blue", "Green", "Red"])))


TABLES = [
    pandas_objects,
    pandas_nullable,
    pandas_categories,
    pandas_arrow,
    arrow_table,
    polars_plain,
    polars_categorical,
    polars_enum,
]
