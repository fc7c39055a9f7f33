"""The container: a zip file with a manifest, which holds checksums of all entries and itself."""

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
# Raise it when an older fareg cannot read new files, or this one cannot read older files.
FORMAT = 3
MANIFEST = "manifest.json"
MAX_ENTRIES = 8
FREE_BYTES = 1 << 22  # any entry may unpack to so many bytes; parsed JSON takes 40 times as many
MAX_RATIO = 20  # additional unpacked bytes per byte of the entry in the file
# Entries have a fixed time, so that the same model gives the same bytes.
EPOCH = (1980, 1, 1, 0, 0, 0)


def write_archive(path: AnyPath, manifest: dict[str, Any], entries: dict[str, bytes]) -> None:
    """Write ``manifest`` and ``entries`` to ``path``, whole or not at all."""
    body = {"kind": KIND, "format": FORMAT, **manifest, "entries": _listed(entries)}
    text = json.dumps({**body, "checksum": checksum(body)}, indent=1, ensure_ascii=False)
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
    """The content of a model file after checks of its manifest and checksums."""

    size: int
    sha256: str  # of the whole file
    manifest: dict[str, Any]
    entries: dict[str, bytes]

    @classmethod
    def read(cls, path: AnyPath, sha256: str | None = None) -> Archive:
        """Read a model file once, and compare it with ``sha256`` before anything is parsed."""
        source = check_readable(path)
        if sha256 is not None and not re.fullmatch("[0-9a-fA-F]{64}", str(sha256)):
            raise InvalidInputError(
                f"sha256 must be the 64 hexadecimal digits that fareg info shows, got {sha256!r}"
            )
        with open(source, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            if sha256 is not None and digest != sha256.lower():
                raise InvalidInputError(
                    f"{source} is not the file that is expected: its SHA-256 is {digest}, not "
                    f"{sha256}; ask whoever gave you the file"
                )
            size = file.seek(0, 2)
            entries = _read_entries(file, size, source) if zipfile.is_zipfile(file) else {}
        manifest = json.loads(entries.pop(MANIFEST, b"null").decode("utf-8"))
        _check_manifest(manifest, entries, source)
        return cls(size, digest, manifest, entries)


def _read_entries(file: Any, size: int, path: Path) -> dict[str, bytes]:
    """Return the entries of a zip file; refuse a file that would take much memory."""
    with zipfile.ZipFile(file) as content:
        infos = content.infolist()
        if len(infos) > MAX_ENTRIES or len({info.filename for info in infos}) < len(infos):
            raise _damaged(path, "it has unexpected entries")
        if sum(info.compress_size for info in infos) > size or not all(map(_is_plausible, infos)):
            raise _damaged(path, "an entry claims more bytes than the file could have")
        return {info.filename: content.read(info) for info in infos}


def _is_plausible(info: zipfile.ZipInfo) -> bool:
    """Return whether an entry does not unpack to far more bytes than it has in the file."""
    known = info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    return known and info.file_size <= FREE_BYTES + MAX_RATIO * info.compress_size


def _check_manifest(manifest: Any, entries: dict[str, bytes], path: Path) -> None:
    """Refuse anything but a manifest of this format, and entries that do not match it."""
    if not isinstance(manifest, dict) or manifest.get("kind") != KIND:
        raise InvalidInputError(
            f"{path} is not a fareg model file, or it was cut short; make one with fareg.save"
        )
    format_ = manifest.get("format")
    if isinstance(format_, int) and format_ != FORMAT:
        older = format_ < FORMAT
        fix = "fit the model again with this one, or read the file with the older one"
        raise InvalidInputError(
            f"{path} was written by {'an older' if older else 'a newer'} fareg (format {format_}; "
            f"this one reads format {FORMAT}); {fix if older else 'upgrade fareg'}"
        )
    body = {key: value for key, value in manifest.items() if key != "checksum"}
    if manifest.get("checksum") != checksum(body) or format_ != FORMAT:
        raise _damaged(path, f"{MANIFEST} does not match its checksum")
    listed, found = manifest["entries"], _listed(entries)
    for name in {**listed, **found}:  # including entries that are never read
        if listed.get(name) != found.get(name):
            raise _damaged(path, f"{name} does not match its checksum")


def _damaged(path: Path, why: str) -> InvalidInputError:
    return InvalidInputError(f"{path} is damaged: {why}; save the model again")


def _listed(entries: dict[str, bytes]) -> dict[str, Any]:
    return {
        name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in entries.items()
    }


def checksum(body: dict[str, Any]) -> str:
    """Return the checksum of a manifest."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
