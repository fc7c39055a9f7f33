"""Worst slabs of fair sets: below the target at the rate of Proposition 2, and where the null is.

All tests are seeded; coverage is 0.9 whatever the features.
"""

import numpy as np
import pytest

from fareg.metrics import worst_slab_coverage

LEVEL = 0.9
N_DRAWS = 40
LARGEST = 1.2  # shortfalls are 0.2 to 0.8 times the rate


@pytest.mark.parametrize(("d", "delta"), [(4, 0.5), (4, 0.1), (10, 0.5)])
def test_wsc_plus_of_fair_sets_falls_at_the_rate_and_equals_the_null(d, delta):
    rng, means = np.random.default_rng(0), []
    for n in (250, 1000):
        rate = np.sqrt(np.log(n) / (delta * n))
        differences, shortfalls = [], []
        for seed in range(N_DRAWS):
            X, covered = rng.random((n, d)), rng.random(n) < LEVEL
            search = {"kind": "quadratic", "delta": delta, "n_directions": 50}
            slab = worst_slab_coverage(X, covered, **search, n_permutations=9, random_state=seed)
            shortfalls.append((LEVEL - slab.value) / rate)
            differences.append(slab.value - slab.null.median)
        assert 0 < max(shortfalls) < LARGEST
        error = np.std(differences) / np.sqrt(N_DRAWS)
        assert abs(np.mean(differences)) < 4 * error
        means.append(np.mean(shortfalls))
    # a constant times the rate, whatever the number of rows
    assert means[1] == pytest.approx(means[0], rel=0.35)
