"""Files in, files out: what the command line calls, for tables that need not fit into memory."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from fareg._lazy import lazy_names as _lazy_names

if _TYPE_CHECKING:
    from fareg.workflow._audit import audit_file
    from fareg.workflow._calibrate import calibrate_file
    from fareg.workflow._fit import Trial, fit_file
    from fareg.workflow._models import MODELS
    from fareg.workflow._monitor import monitor_file
    from fareg.workflow._predict import predict_file
    from fareg.workflow._table import MAX_ROWS, Table, read_table

__all__ = [
    "MAX_ROWS",
    "MODELS",
    "Table",
    "Trial",
    "audit_file",
    "calibrate_file",
    "fit_file",
    "monitor_file",
    "predict_file",
    "read_table",
]

# Names are imported when they are used, so prediction does not import what fit and audit need.
_HOMES = {
    "_audit": ["audit_file"],
    "_calibrate": ["calibrate_file"],
    "_fit": ["Trial", "fit_file"],
    "_models": ["MODELS"],
    "_monitor": ["monitor_file"],
    "_predict": ["predict_file"],
    "_table": ["MAX_ROWS", "Table", "read_table"],
}
__getattr__, __dir__ = _lazy_names("fareg.workflow", _HOMES)
