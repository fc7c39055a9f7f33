"""Which gap of coverage is worth a name: a large one, whose whole interval lies below."""

from __future__ import annotations

# Coverage must lie MIN_GAP below the level, and its whole 95% interval MARGIN below it.
MIN_GAP = 0.04
MARGIN = 0.02


def is_far_below(coverage: float, high: float, confidence_level: float) -> bool:
    """Tell whether a group with this coverage, and this end of its interval, is worth a name.

    At 99%, a gap of 0.04 would be five times the promised errors: above 90%, gaps shrink with them.

    >>> is_far_below(0.82, 0.85, 0.9), is_far_below(0.876, 0.88, 0.9), is_far_below(0.8, 0.89, 0.9)
    (True, False, False)
    >>> is_far_below(0.985, 0.987, 0.99), is_far_below(0.987, 0.987, 0.99)
    (True, False)
    """
    scale = min(1.0, round((1 - confidence_level) / 0.1, 9))
    gap, margin = MIN_GAP * scale, MARGIN * scale
    return coverage <= confidence_level - gap and high <= confidence_level - margin
