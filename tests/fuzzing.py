"""One budget for tests that draw tables, files and parameters at random.

``make test`` draws the same few cases on every machine, so that they cost seconds; a search for new
ones (``HYPOTHESIS_PROFILE=default``) draws ten times as many.
"""

import os

from hypothesis import HealthCheck, settings

FACTOR = 1 if os.environ.get("HYPOTHESIS_PROFILE", "same") == "same" else 10


def cases(n):
    """Return the settings of a test that draws ``n`` cases, each of which may take its time."""
    return settings(max_examples=n * FACTOR, deadline=None, suppress_health_check=list(HealthCheck))
