"""People with several calibration rows: what their rows count, or one row of each.

The promise is made to a row that is drawn at random from a new person. Ranks are weighted where a
method ranks scores, so that all rows count; other methods calibrate on one row of each person.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fareg._hashing import row_hashes, uniforms_of
from fareg._validation import IntArray
from fareg.calibration._rows import Rows

SHIFT = 7  # of the key, so that the draw is independent of scores and groups


def cluster_sizes(clusters: Any) -> IntArray | None:
    """Return the number of rows in the cluster of each row; None where rows have no clusters.

    >>> cluster_sizes(["ann", "ben", "ann"])
    array([2, 1, 2])
    """
    if clusters is None:
        return None
    _, which, sizes = np.unique(np.asarray(clusters), return_inverse=True, return_counts=True)
    return sizes[which]


def one_of_each_cluster(rows: Rows) -> Rows:
    """Return one labelled row of each cluster, drawn at random; all rows if they have no clusters.

    The draw depends on the ids, on the values of the rows and on their key, not on their order.
    """
    if rows.clusters is None:
        return rows
    ids, which, sizes = np.unique(rows.clusters, return_inverse=True, return_counts=True)
    # Rows of a cluster in an order that their values decide; a number of its own picks one of them.
    order = np.lexsort((rows.labels, rows.more_uniforms(SHIFT), which))
    u = uniforms_of(row_hashes(ids[:, None].astype(object), rows.key + SHIFT))
    chosen = order[np.cumsum(sizes) - sizes + (u * sizes).astype(np.int64)]
    return rows.take(np.sort(chosen))
