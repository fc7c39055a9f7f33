"""Watch classifiers after deployment: streams of labelled rows, bets, and a small state."""

from fareg.monitoring._monitor import CoverageMonitor
from fareg.monitoring._streams import Alarm

__all__ = ["Alarm", "CoverageMonitor"]
