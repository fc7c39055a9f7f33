"""Projections along which slabs are cut: linear and quadratic functions of the features."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fareg._validation import FloatArray


@dataclass(frozen=True)
class Directions:
    """A batch of projections ``pi(x) = x' W x + v' x``; a linear one has no ``W``."""

    v: FloatArray  # (n_directions, n_features)
    W: FloatArray | None = None  # (n_directions, n_features, n_features)

    @classmethod
    def draw(
        cls, n_directions: int, n_features: int, kind: str, rng: np.random.Generator
    ) -> Directions:
        """Draw directions: ``v`` and each column of ``W`` uniform on the unit sphere."""
        n_vectors = 1 if kind == "linear" else 1 + n_features
        vectors = rng.standard_normal((n_directions, n_vectors, n_features))
        vectors /= np.linalg.norm(vectors, axis=2, keepdims=True)
        v = vectors[:, 0]
        return cls(v) if kind == "linear" else cls(v, vectors[:, 1:].transpose(0, 2, 1))

    def __getitem__(self, rows: slice) -> Directions:
        return Directions(self.v[rows], None if self.W is None else self.W[rows])

    @classmethod
    def axes(cls, n_features: int, kind: str) -> Directions:
        """Return the features themselves, one direction each."""
        W = None if kind == "linear" else np.zeros((n_features, n_features, n_features))
        return cls(np.eye(n_features), W)

    @classmethod
    def join(cls, *parts: Directions) -> Directions:
        """Return several batches of one kind as one."""
        W = [part.W for part in parts if part.W is not None]
        return cls(np.concatenate([part.v for part in parts]), np.concatenate(W) if W else None)

    def project(self, numbers: FloatArray) -> FloatArray:
        """Return the projections, shape (n_directions, n_samples), of an array of numbers.

        Sums run feature by feature, elementwise: unlike a matrix product, whose rounding depends
        on how it is blocked, equal rows get equal projections whatever rows and directions come
        with them, so ties are ties.
        """
        features = np.ascontiguousarray(numbers.T)
        projection = np.zeros((len(self.v), len(numbers)))
        factor, term = np.empty_like(projection), np.empty_like(projection)
        for i, x in enumerate(features):
            # x' W x = sum_i x_i (W_ii x_i + sum_{j > i} (W_ij + W_ji) x_j)
            both = np.zeros((len(self.v), len(features)))
            if self.W is not None:
                both[:, i + 1 :] = (self.W[:, i] + self.W[:, :, i])[:, i + 1 :]
                both[:, i] = self.W[:, i, i]
            others = np.flatnonzero(both.any(axis=0))  # a zero coefficient adds nothing
            if len(others) == 0 and not self.v[:, i].any():
                continue
            factor[:] = self.v[:, i, None]
            for j in others:
                factor += np.multiply(both[:, j, None], features[j], out=term)
            projection += np.multiply(factor, x, out=term)
        return projection
