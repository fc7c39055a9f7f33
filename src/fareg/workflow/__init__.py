"""Files in, files out: what the command line calls, for tables that need not fit into memory."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from fareg._lazy import lazy_names as _lazy_names

if _TYPE_CHECKING:
    from fareg.workflow._audit import audit_file
    from fareg.workflow._calibrate import calibrate_folder
    from fareg.workflow._fit import Trial, fit_file
    from fareg.workflow._models import MODELS
    from fareg.workflow._parquet import MAX_ROWS, Sampling, count_rows
    from fareg.workflow._predict import predict_file
    from fareg.workflow._predict_folder import predict_folder
    from fareg.workflow._tables import read_table, table_columns

__all__ = [
    "MAX_ROWS",
    "MODELS",
    "Sampling",
    "Trial",
    "audit_file",
    "calibrate_folder",
    "count_rows",
    "fit_file",
    "predict_file",
    "predict_folder",
    "read_table",
    "table_columns",
]

# Names are imported when they are used, so prediction does not import what fit and audit need.
_HOMES = {
    "_audit": ["audit_file"],
    "_calibrate": ["calibrate_folder"],
    "_fit": ["Trial", "fit_file"],
    "_models": ["MODELS"],
    "_parquet": ["MAX_ROWS", "Sampling", "count_rows"],
    "_predict": ["predict_file"],
    "_predict_folder": ["predict_folder"],
    "_tables": ["read_table", "table_columns"],
}
__getattr__, __dir__ = _lazy_names("fareg.workflow", _HOMES)
