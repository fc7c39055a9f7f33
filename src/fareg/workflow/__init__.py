"""Files in, files out: what the command line calls, for tables that need not fit into memory."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from fareg._lazy import lazy_names as _lazy_names

if _TYPE_CHECKING:
    from fareg.workflow._audit import audit_file
    from fareg.workflow._fit import Trial, fit_file
    from fareg.workflow._predict import predict_file
    from fareg.workflow._predict_folder import predict_folder
    from fareg.workflow._tables import count_rows

__all__ = ["Trial", "audit_file", "count_rows", "fit_file", "predict_file", "predict_folder"]

# prediction does without what fit and audit import
__getattr__, __dir__ = _lazy_names(
    "fareg.workflow",
    {
        "Trial": "fareg.workflow._fit",
        "audit_file": "fareg.workflow._audit",
        "count_rows": "fareg.workflow._tables",
        "fit_file": "fareg.workflow._fit",
        "predict_file": "fareg.workflow._predict",
        "predict_folder": "fareg.workflow._predict_folder",
    },
)
