"""The command line: it parses, calls and prints."""

from fareg.cli._app import app

__all__ = ["app"]
