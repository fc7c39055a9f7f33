"""Files in, files out: what the command line calls, for tables that need not fit into memory."""

from fareg.workflow._audit import audit_file
from fareg.workflow._fit import Trial, fit_file
from fareg.workflow._predict import predict_file
from fareg.workflow._predict_folder import predict_folder

__all__ = ["Trial", "audit_file", "fit_file", "predict_file", "predict_folder"]
