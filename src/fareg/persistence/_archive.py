"""The container: a zip of a few entries, a manifest with a checksum of each, and of itself."""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fareg._files import AnyPath, check_readable, replacing
from fareg._validation import InvalidInputError

KIND = "fareg model"
# It is raised when an older fareg cannot read new files, or this one cannot read older files.
FORMAT = 3
MANIFEST = "manifest.json"
MAX_ENTRIES = 8
FREE_BYTES = 1 << 22  # bytes that any part may unfold to; parsed JSON takes forty times as many
MAX_RATIO = 20  # further bytes that an entry may unfold to, for each that it has in the file
# Entries carry a fixed time, so that the same model gives the same bytes.
EPOCH = (1980, 1, 1, 0, 0, 0)


def write_archive(path: AnyPath, manifest: dict[str, Any], entries: dict[str, bytes]) -> None:
    """Write ``manifest`` and ``entries`` to ``path``, whole or not at all."""
    listed = {name: {"bytes": len(e), "sha256": _digest(e)} for name, e in entries.items()}
    body = {"kind": KIND, "format": FORMAT, **manifest, "entries": listed}
    text = json.dumps({**body, "checksum": _checksum(body)}, indent=1, ensure_ascii=False)
    contents = {MANIFEST: text.encode(), **entries}
    with replacing(path) as temporary:
        for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED):
            with zipfile.ZipFile(temporary, "w", method, compresslevel=1) as archive:
                for name, content in contents.items():
                    archive.writestr(zipfile.ZipInfo(name, EPOCH), content, method)
                if all(map(_is_plausible, archive.infolist())):
                    break


@dataclass(frozen=True, eq=False)
class Archive:
    """What is in a model file, whose manifest and checksums have been checked."""

    size: int
    sha256: str  # of the whole file
    manifest: dict[str, Any]
    entries: dict[str, bytes]

    @classmethod
    def read(cls, path: AnyPath, sha256: str | None = None) -> Archive:
        """Read a model file once, and check its manifest and every entry.

        Where ``sha256`` is given, the file is compared with it before anything is parsed.
        """
        source = check_readable(path)
        with open(source, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            _compare(digest, sha256, source)
            if not zipfile.is_zipfile(file):
                raise InvalidInputError(
                    f"{source} is not a fareg model file, or it was cut short; "
                    "make one with fareg.save"
                )
            size = file.seek(0, 2)
            with zipfile.ZipFile(file) as content:
                _check_names(content.infolist(), size, source)
                entries = {name: content.read(name) for name in content.namelist()}
        manifest = json.loads(entries.pop(MANIFEST).decode("utf-8"))
        _check_manifest(manifest, source)
        _check_entries(entries, manifest["entries"], source)
        return cls(size, digest, manifest, entries)


def _compare(digest: str, expected: str | None, path: Path) -> None:
    if expected is None:
        return
    if not isinstance(expected, str) or not re.fullmatch("[0-9a-fA-F]{64}", expected):
        raise InvalidInputError(
            f"sha256 must be the 64 hexadecimal digits that fareg info shows, got {expected!r}"
        )
    if digest != expected.lower():
        raise InvalidInputError(
            f"{path} is not the file that is expected: its SHA-256 is {digest}, not {expected}; "
            "ask whoever gave you the file"
        )


def _check_names(infos: list[zipfile.ZipInfo], size: int, path: Path) -> None:
    """Refuse entries that do not belong, or that could cost much to read."""
    names = {info.filename for info in infos}
    if MANIFEST not in names:
        raise InvalidInputError(
            f"{path} is not a fareg model file, or it was cut short: it has no {MANIFEST}"
        )
    if len(infos) > MAX_ENTRIES or len(names) < len(infos):
        raise InvalidInputError(f"{path} is not a fareg model: it has entries that do not belong")
    if sum(info.compress_size for info in infos) > size or not all(map(_is_plausible, infos)):
        raise InvalidInputError(
            f"{path} is damaged: an entry claims more bytes than the file could have"
        )


def _is_plausible(info: zipfile.ZipInfo) -> bool:
    """Tell whether an entry does not unfold from little into much."""
    known = info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    return known and info.file_size <= FREE_BYTES + MAX_RATIO * info.compress_size


def _check_manifest(manifest: Any, path: Path) -> None:
    if not isinstance(manifest, dict) or manifest.get("kind") != KIND:
        raise InvalidInputError(
            f"{path} is a zip file but not a fareg model: its manifest is another"
        )
    format_ = manifest.get("format")
    if isinstance(format_, int) and 0 < format_ < FORMAT:
        raise InvalidInputError(
            f"{path} was written by an older fareg (format {format_}; this one reads format "
            f"{FORMAT}); fit the model again with this one, or read the file with the older"
        )
    if isinstance(format_, int) and format_ > FORMAT:
        version = manifest.get("versions", {}).get("fareg", "unknown")
        raise InvalidInputError(
            f"{path} was written by a newer fareg ({version}, format {format_}; this one reads "
            f"format {FORMAT}); upgrade fareg"
        )
    body = {key: value for key, value in manifest.items() if key != "checksum"}
    if manifest.get("checksum") != _checksum(body) or format_ != FORMAT:
        raise InvalidInputError(
            f"{path} is damaged: {MANIFEST} does not match its checksum; save the model again"
        )


def _check_entries(entries: dict[str, bytes], listed: dict[str, Any], path: Path) -> None:
    """Refuse entries that do not match the manifest, also those that nobody may read later."""
    if listed.keys() != entries.keys():
        raise InvalidInputError(f"{path} is damaged: its entries are not those of the manifest")
    for name, content in entries.items():
        if listed[name] != {"bytes": len(content), "sha256": _digest(content)}:
            raise InvalidInputError(
                f"{path} is damaged: {name} does not match its checksum; save the model again"
            )


def _checksum(body: dict[str, Any]) -> str:
    return _digest(json.dumps(body, sort_keys=True).encode())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
