"""Which gap of coverage is worth a name: a large one, whose whole interval lies below."""

from __future__ import annotations

# Coverage must lie MIN_GAP below the level, and its whole 95% interval MARGIN below it. Both are
# smaller if alpha is below 0.1.
MIN_GAP = 0.04
MARGIN = 0.02


def scaled(gap: float, confidence_level: float) -> float:
    """Return a gap for a level: at 99%, one of 0.04 would be five times the promised errors.

    >>> scaled(0.04, 0.9), round(scaled(0.04, 0.99), 4)
    (0.04, 0.004)
    """
    return gap * min(1.0, round((1 - confidence_level) / 0.1, 9))


def is_far_below(coverage: float, high: float, confidence_level: float) -> bool:
    """Tell whether a group with this coverage, and this end of its interval, is worth a name.

    >>> is_far_below(0.82, 0.85, 0.9), is_far_below(0.876, 0.88, 0.9), is_far_below(0.8, 0.89, 0.9)
    (True, False, False)
    """
    gap, margin = (scaled(one, confidence_level) for one in (MIN_GAP, MARGIN))
    return coverage <= confidence_level - gap and high <= confidence_level - margin
