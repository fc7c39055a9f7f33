"""Which few features are tried together: singles, pairs of the best ones, then triples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations

import numpy as np

from fareg._validation import BoolArray, FloatArray, IntArray

MAX_FEATURES = 40  # if there are more, only the best single features enter pairs
MAX_FEATURES_TRIPLES = 10  # if there are more, only the best pairs are extended

Subset = tuple[int, ...]


def tried_subsets(
    n_features: int,
    n_searches: int,
    score: Callable[[Subset, IntArray], FloatArray],
    *,
    n_extended: int,
) -> Iterator[tuple[Subset, IntArray, FloatArray]]:
    """Run several searches at once, each led by its own gains alone.

    ``score(subset, searches)`` returns the gains of a subset in some of the searches. Yields each
    subset that is tried, the searches that try it and its gains in them.
    """
    everyone = np.arange(n_searches)
    single = np.empty((n_features, n_searches))
    for j in range(n_features):
        single[j] = score((j,), everyone)
        yield (j,), everyone, single[j]
    ranks = np.argsort(np.argsort(-single, axis=0, kind="stable"), axis=0)
    is_kept = ranks < MAX_FEATURES  # per feature and search
    pairs: dict[Subset, FloatArray] = {}
    for i, j in combinations(range(n_features), 2):
        searches = np.flatnonzero(is_kept[i] & is_kept[j])
        if len(searches):
            pairs[i, j] = np.full(n_searches, -np.inf)
            pairs[i, j][searches] = gains = score((i, j), searches)
            yield (i, j), searches, gains
    triples: dict[Subset, IntArray] = {}
    if n_features <= MAX_FEATURES_TRIPLES:
        triples = dict.fromkeys(combinations(range(n_features), 3), everyone)
    else:
        triples = _extended(pairs, is_kept, n_extended)
    for triple, searches in triples.items():
        yield triple, searches, score(triple, searches)


def _extended(
    pairs: dict[Subset, FloatArray], is_kept: BoolArray, n_extended: int
) -> dict[Subset, IntArray]:
    """Return the triples that hold one of a search's best pairs, and the searches of each."""
    subsets, gains = list(pairs), np.array(list(pairs.values()))
    wanted: dict[Subset, set[int]] = {}
    for search in range(is_kept.shape[1]):
        kept = np.flatnonzero(is_kept[:, search]).tolist()
        for row in np.argsort(-gains[:, search], kind="stable")[:n_extended]:
            for j in set(kept).difference(subsets[row]):
                wanted.setdefault(tuple(sorted((*subsets[row], j))), set()).add(search)
    return {triple: np.array(sorted(wanted[triple])) for triple in sorted(wanted)}
