"""Reproduce the paper: from the names of tables and figures to files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from fareg._engines import check_engine
from fareg._files import check_outputs, kept_if_stopped
from fareg._validation import FaregError, check_count
from fareg.datasets import PAPER_STATES
from fareg.experiments._bench import Store
from fareg.experiments._reports import write_page, write_target
from fareg.experiments._runs import collect, run_cells
from fareg.experiments._targets import NO_ACS, TARGETS, Plan


@dataclass(frozen=True)
class Reproduction:
    """The results of a run."""

    folder: Path
    page: Path
    files: dict[str, list[Path]]  # tables and figures of each target
    skipped: dict[str, str]  # targets that were left out, with the reason and the fix

    def to_dict(self) -> dict[str, Any]:
        files = {name: [str(path) for path in paths] for name, paths in self.files.items()}
        page, folder = str(self.page), str(self.folder)
        return {"folder": folder, "page": page, "files": files, "skipped": self.skipped}


def list_targets() -> dict[str, str]:
    """Return the names and titles of all targets.

    >>> list_targets()["beta"]
    'Table 3: weight beta of the KL term'
    """
    return {name: target.title for name, target in TARGETS.items()}


def reproduce(
    targets: Sequence[str] = (),
    *,
    out: str | Path = "reproduction",
    quick: bool = False,
    repeats: int | None = None,
    sizes: Sequence[int] | None = None,
    jobs: int | None = None,
    engine: str = "local",
    acs_root: str | Path | None = None,
    acs_states: Sequence[str] | None = None,
    page: str | Path | None = None,
    console: Console | None = None,
) -> Reproduction:
    """Run the paper's experiments and write their tables and figures, and a page with them.

    Finished work is stored at once: after a run was stopped, in whatever way, the same call
    continues where it stopped, and ends with the same numbers.

    Parameters
    ----------
    targets : sequence of str, default=()
        Names from ``list_targets()``; empty for all.
    out : path, default="reproduction"
        Folder for finished work.
    quick : bool, default=False
        Small networks, short training and small data: rough numbers, minutes for everything.
    repeats : int, default=None
        Repetitions; None for 10, or 1 if ``quick``.
    sizes : sequence of int, default=None
        Values of N, the number of training and calibration rows. Targets at one size take the
        largest. None for the paper's.
    jobs : int, default=None
        Processes; None for one per core.
    engine : str, default="local"
        "local", "dask" for a dask cluster on this machine, or the address of a dask scheduler such
        as ``tcp://head:8786``.
    acs_root : path, default=None
        Folder with PUMS person files, as ``fareg.datasets.load_acs_income`` reads them.
    acs_states : sequence of str, default=None
        Postal codes of the states in ACSIncome; None for the paper's.
    page : path, default=None
        The page to write, ``page.md`` in ``out`` if None. Tables and figures go to a folder of the
        same name next to it; the page also shows those of earlier runs there.
    console : rich Console, default=None
        Shows progress if it is a terminal.

    Examples
    --------
    >>> import tempfile
    >>> from fareg.experiments import reproduce
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     done = reproduce(["wsc-table"], out=folder, quick=True, sizes=[40], jobs=1)
    ...     print(sorted(path.name for path in done.files["wsc-table"]))
    ['summary.csv']
    """
    page = Path(out) / "page.md" if page is None else Path(page)
    check_outputs([out, page], inputs=[acs_root])
    if sizes is not None and not sizes:
        raise FaregError("sizes must hold at least one number of rows, got none")
    if unknown := [name for name in targets if name not in TARGETS]:
        raise FaregError(f"unknown target {', '.join(unknown)}; known are {', '.join(TARGETS)}")
    plan = Plan(
        repeats=(1 if quick else 10) if repeats is None else check_count("repeats", repeats),
        sizes=None if sizes is None else tuple(check_count("sizes", n, minimum=40) for n in sizes),
        acs_root=None if acs_root is None else Path(acs_root),
        acs_states=PAPER_STATES if acs_states is None else tuple(acs_states),
    )
    plan = plan.quickly() if quick else plan
    wanted = [name for name in TARGETS if not targets or name in targets]
    skipped = {"acs": NO_ACS} if "acs" in wanted and acs_root is None else {}
    needed = {name: [*TARGETS[name].cells(plan)] for name in wanted if name not in skipped}
    check_engine(engine, jobs)  # before anything is written
    store = Store.open(out)
    with kept_if_stopped():
        cells = [cell for named in needed.values() for cell, _ in named]
        run_cells(cells, store, jobs=jobs, engine=engine, console=console)
        files = {
            name: write_target(name, collect(named, store), page.with_suffix(""), quick=quick)
            for name, named in needed.items()
        }
        return Reproduction(store.folder, write_page(page), files, skipped)
