"""Finished work on disk: one small Parquet file per cell, written at once and atomically."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from fareg._files import replacing
from fareg._validation import FaregError
from fareg.experiments._settings import FORMAT

MANIFEST = "fareg-results.json"


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, unless it is there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise FaregError(f"cannot write to {folder} ({reason}); choose another folder") from error


def write_file(path: Path, content: str | bytes) -> Path:
    """Write a file, whole or not at all, and the folder that it needs; return its path."""
    make_folder(path.parent)
    with replacing(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


class Store:
    """A results folder: cells and base models by the hash of their configuration."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    @classmethod
    def open(cls, folder: str | Path) -> Store:
        """Make the folder, or check that this version of fareg wrote it."""
        store = cls(folder)
        manifest = store.folder / MANIFEST
        own = {"fareg": version("fareg"), "format": FORMAT}
        try:
            found = json.loads(manifest.read_text(encoding="utf-8"))
        except FileNotFoundError:
            found = None
        except (OSError, ValueError) as error:
            raise FaregError(f"cannot read {manifest} ({error}); choose another folder") from error
        if found is not None and found != own:
            raise FaregError(
                f"{store.folder} holds results of another version ({_spell(found)}; this is "
                f"{_spell(own)}); choose another folder"
            )
        # It is written even if it is there: an unwritable folder is refused now, not after hours.
        write_file(manifest, json.dumps(own) + "\n")
        return store

    def path(self, key: str) -> Path:
        """Return where the rows of a key are, or would be."""
        return self.folder / "cells" / f"v{FORMAT}" / key[:2] / f"{key}.parquet"

    def get(self, key: str) -> pd.DataFrame | None:
        """Return the rows of a key; None if they are not there, or damaged."""
        try:
            return pq.read_table(self.path(key)).to_pandas()
        except (OSError, pa.ArrowInvalid):
            return None  # a damaged file is replaced when its cell is computed again

    def need(self, key: str) -> pd.DataFrame:
        """Return the rows of a key that was computed."""
        rows = self.get(key)
        if rows is None:
            raise FaregError(f"{self.path(key)} has gone; run the same command again")
        return rows

    def once(self, key: str, compute: Callable[[], pd.DataFrame]) -> pd.DataFrame:
        """Return the rows of a key; compute and store them if they are not there."""
        rows = self.get(key)
        return self.put(key, compute()) if rows is None else rows

    def put(self, key: str, rows: pd.DataFrame) -> pd.DataFrame:
        """Store the rows of a key and return them."""
        write_file(self.path(key), rows.to_parquet(index=False))
        return rows


def _spell(manifest: object) -> str:
    if not isinstance(manifest, dict):
        return "unknown"
    return f"fareg {manifest.get('fareg', '?')}, format {manifest.get('format', '?')}"
