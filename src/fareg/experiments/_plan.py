"""How much to run: sizes, repetitions and settings, in full or quickly."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from fareg.datasets import PAPER_STATES
from fareg.experiments._config import BaseConfig, MetricConfig, Parameters

ACS_YEAR = 2018
NO_ACS = (
    f"no data: download the {ACS_YEAR} 1-year PUMS person files of {', '.join(PAPER_STATES)} "
    "(csv_pca.zip and so on) from "
    f"https://www2.census.gov/programs-surveys/acs/data/pums/{ACS_YEAR}/1-Year/, unpack them into "
    f"FOLDER/{ACS_YEAR}/1-Year/ and name FOLDER as the root of the ACS"
)
ACS_ROWS = 20_000
ACS_TEST = 2_000
QUICK_BASE = BaseConfig(hidden=(64, 32), learning_rate=3e-3, max_epochs=60, patience=20)
QUICK_METRICS = MetricConfig(n_directions=100, n_permutations=9)
QUICK_STEPS = 200
FULL_SIZES = {"synthetic": (200, 500, 1000, 2000, 4000), "nursery": (200, 500, 1000, 2000)}
QUICK_SIZES = (200, 500)
# Which rows stop the base network; BaseConfig tells what follows from it.
PROTOCOLS = {"exact": "training", "published": "calibration"}


@dataclass(frozen=True)
class Plan:
    """What to run."""

    quick: bool = False  # small networks, short training, few sizes: everything in minutes
    repeats: int = 10
    sizes: tuple[int, ...] | None = None  # values of N; targets at one size take the largest
    acs_root: Path | None = None  # folder with files of the American Community Survey
    acs_states: tuple[str, ...] = PAPER_STATES  # postal codes
    protocol: str = "exact"  # a key of PROTOCOLS

    @property
    def base(self) -> BaseConfig:
        """The base classifier."""
        base = QUICK_BASE if self.quick else BaseConfig()
        return replace(base, stopped_on=PROTOCOLS[self.protocol])

    @property
    def metrics(self) -> MetricConfig:
        """How to measure."""
        return QUICK_METRICS if self.quick else MetricConfig()

    @property
    def steps(self) -> Parameters:
        """The steps that train FaReG (paper), if not the published number."""
        return (("max_iter", QUICK_STEPS),) if self.quick else ()

    def sizes_of(self, target: str) -> tuple[int, ...]:
        """Return the values of N of a target that varies it."""
        if self.sizes is not None:
            return tuple(sorted(set(self.sizes)))
        return QUICK_SIZES if self.quick else FULL_SIZES[target]

    def size(self, n: int) -> int:
        """Return the N of a target at one size, the paper's ``n`` unless the plan says else."""
        if self.sizes is not None:
            return max(self.sizes)
        return max(QUICK_SIZES) if self.quick else n
