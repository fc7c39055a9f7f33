"""Writes ``docs/gallery.md``: every example with its output and pictures (``make gallery``).

The site includes the code from ``examples``. Output and pictures are kept in the repository,
because building a site should not train models.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "gallery"
N_LINES = 12
HEAD = """# Gallery
The examples in the folder `examples`, with their pictures and the first lines of their output.
"""
SECTION = """
## {title}
{text}
{pictures}
```
{printed}
```
??? example "examples/{name}"
    ```python
    --8<-- "examples/{name}"
    ```
"""


def section(path: Path) -> str:
    """Run an example in an empty folder and return its part of the page."""
    title, _, text = (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").partition("\n")
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, str(path), folder],
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "MPLBACKEND": "Agg"},
        )
        pictures = [
            f"![{found.stem}](gallery/{name})"
            for found in sorted(Path(folder).rglob("*"))
            if found.suffix in (".png", ".html")
            and (name := keep_picture(found, f"{path.stem}-{found.stem}.png"))
        ]
        printed = first_lines(done.stdout.strip("\n").replace(folder, "."))
    return SECTION.format(
        title=title.rstrip("."),
        text=text.split("\nRun:")[0].strip(),
        pictures="\n".join(pictures),
        printed=printed,
        name=path.name,
    )


def first_lines(printed: str) -> str:
    """Return the lines of an output that the page shows."""
    lines = printed.split("\n")
    return "\n".join(lines if len(lines) <= N_LINES else [*lines[:N_LINES], "..."])


def keep_picture(found: Path, name: str) -> str | None:
    """Copy a picture to the documentation; HTML is photographed by a browser if there is one."""
    if found.suffix == ".png":
        shutil.copy(found, PICTURES / name)
        return name
    browser = shutil.which("chromium")
    if browser is None:
        return None
    shot = f"--screenshot={PICTURES / name}"
    options = ["--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1000,1100"]
    subprocess.run([browser, *options, shot, found.as_uri()], check=True, capture_output=True)
    return name


def main() -> None:
    """Write the page and its pictures."""
    shutil.rmtree(PICTURES, ignore_errors=True)
    PICTURES.mkdir()
    examples = sorted((ROOT / "examples").glob("*.py"))
    page = HEAD + "".join(section(path) for path in examples)
    (ROOT / "docs" / "gallery.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
