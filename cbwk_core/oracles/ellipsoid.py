"""Projection of many vectors onto a Euclidean ball in the norm of A.

    argmin over ‖x‖ <= R of (x - θ)ᵀA(x - θ)  =  (I + μA⁻¹)⁻¹ θ  with μ >= 0 such that its norm is R.

The caller has A⁻¹. A is ridge·I plus a matrix of low rank, so the Krylov space of A⁻¹ from θ contains the solution
after a few steps. A Lanczos step costs m²; an eigendecomposition of A would cost m³ in every round.
"""

from __future__ import annotations

import numpy as np

from cbwk_core.arrays import Array

# The Krylov space is deep enough if the residual of the linear system, relative to θ, is at most this.
RESIDUAL_TOLERANCE = 1e-13
SECULAR_STEPS_MAX = 100
# Up to this dimension an eigendecomposition is faster than building a Krylov space.
DENSE_MAX = 12
# Depth of the Krylov space at the first check of the residual; the depth doubles between checks.
DEPTH_FIRST = 4


def project_onto_ball(theta: Array, inverse: Array, radius: float) -> None:
    """Project in place every column of θ (..., m, q) that lies outside the ball, in the norm of A; `inverse` is A⁻¹.

    >>> theta = np.array([[3.0], [0.0]])
    >>> project_onto_ball(theta, np.diag([0.5, 1.0]), 1.0)
    >>> theta
    array([[1.],
           [0.]])
    """
    square = np.vecdot(theta.mT, theta.mT)
    outside = square > radius * radius
    if not outside.any():
        return
    *lane, target = np.nonzero(outside)
    vectors, norm = theta.mT[(*lane, target)], np.sqrt(square[outside])
    matrices = inverse[tuple(lane)] if lane else np.broadcast_to(inverse, (norm.size, *inverse.shape))
    solve = _project_dense if vectors.shape[1] <= DENSE_MAX else _project_krylov
    theta.mT[(*lane, target)] = solve(vectors, norm, matrices, radius)


def _project_dense(vectors: Array, norm: Array, matrices: Array, radius: float) -> Array:
    """Return the projections of vectors (n, m) by eigendecompositions of the matrices A⁻¹ (n, m, m)."""
    del norm
    eigenvalues, basis = np.linalg.eigh(matrices)
    start = np.matmul(vectors[:, None, :], basis)[:, 0]
    mu = _secular_root(eigenvalues, start**2, radius)
    return np.asarray(np.vecdot(basis, (start / (1.0 + mu[:, None] * eigenvalues))[:, None, :]))


def _project_krylov(vectors: Array, norm: Array, matrices: Array, radius: float) -> Array:
    """Return the projections of vectors (n, m) by Lanczos iterations that stop when all residuals are small."""
    n, m = vectors.shape
    basis, tridiagonal = np.zeros((n, m, m)), np.zeros((n, m, m))
    basis[:, 0] = vectors / norm[:, None]
    check = DEPTH_FIRST
    for depth in range(1, m + 1):
        known = basis[:, :depth]
        image = np.matmul(matrices, known[:, -1, :, None])[..., 0]
        tridiagonal[:, depth - 1, depth - 1] = np.vecdot(known[:, -1], image)
        for _ in range(2):  # two passes keep the basis orthogonal
            image -= np.matmul(np.matmul(known, image[..., None]).mT, known)[:, 0]
        beta = np.sqrt(np.vecdot(image, image))
        beta = np.where(beta > 1e-14 * np.abs(tridiagonal[:, 0, 0]), beta, 0.0)
        if depth in (m, check) or not beta.any():
            coefficients, residual = _solve_tridiagonal(tridiagonal[:, :depth, :depth], norm, beta, radius)
            if depth == m or not (residual > RESIDUAL_TOLERANCE).any():
                break
            check *= 2
        tridiagonal[:, depth - 1, depth] = tridiagonal[:, depth, depth - 1] = beta
        basis[:, depth] = image / np.where(beta > 0, beta, 1.0)[:, None]
    return np.asarray(np.matmul(coefficients[:, None, :], known)[:, 0])


def _solve_tridiagonal(tridiagonal: Array, norm: Array, beta: Array, radius: float) -> tuple[Array, Array]:
    """Return the projections in the coordinates of their Krylov bases (n, depth) and the relative residuals (n,)."""
    eigenvalues, vectors = np.linalg.eigh(tridiagonal)
    start = vectors[:, 0] * norm[:, None]
    mu = _secular_root(eigenvalues, start**2, radius)
    coefficients = np.vecdot(vectors, (start / (1.0 + mu[:, None] * eigenvalues))[:, None, :])
    return coefficients, mu * beta * np.abs(coefficients[:, -1]) / norm


def _secular_root(eigenvalues: Array, weights: Array, radius: float) -> Array:
    """Return μ >= 0 with Σ weights / (1 + μ·eigenvalue)² = radius²; 0 if the sum at μ = 0 is at most radius².

    Newton's method solves 1/‖x(μ)‖ = 1/radius. The left side is concave and nearly linear in μ, so μ never overshoots.
    """
    mu = np.zeros(weights.shape[:-1])
    for _ in range(SECULAR_STEPS_MAX):
        shrunk = 1.0 + mu[..., None] * eigenvalues
        square = np.sum(weights / shrunk**2, axis=-1)
        slope = np.sum(weights * eigenvalues / shrunk**3, axis=-1)
        size = np.sqrt(square)
        step = np.where(size > radius, (size / radius - 1.0) * square / np.maximum(slope, 1e-300), 0.0)
        mu = mu + step
        if not (step > 1e-15 * mu).any():
            break
    return mu
