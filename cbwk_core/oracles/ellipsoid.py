"""Projection in the norm of A onto a Euclidean ball, for many vectors at once.

    argmin over ‖x‖ <= R of (x - θ)ᵀA(x - θ)  =  (I + μA⁻¹)⁻¹ θ  with μ >= 0 such that its norm is R.

A⁻¹ is at hand, and A is ridge·I plus what few directions the data had, so a Krylov space of A⁻¹ from θ holds the answer
after a few steps: Lanczos costs m² a step, where an eigendecomposition of A would cost m³ every round.
"""

from __future__ import annotations

import numpy as np

from cbwk_core.oracle import Array

# Residual of the linear system at which the Krylov space is deep enough, relative to θ.
RESIDUAL_TOLERANCE = 1e-13
SECULAR_STEPS_MAX = 100


def project_onto_ball(theta: Array, inverse: Array, radius: float) -> None:
    """Project, in place, every column of θ (..., m, q) that lies outside, in the norm of A given A⁻¹ (..., m, m).

    >>> theta = np.array([[3.0], [0.0]])
    >>> project_onto_ball(theta, np.diag([0.5, 1.0]), 1.0)
    >>> theta
    array([[1.],
           [0.]])
    """
    norm = np.sqrt(_column_dot(theta, theta))
    outside = norm > radius
    if not outside.any():
        return
    m = theta.shape[-2]
    basis = [theta / np.maximum(norm, 1e-300)[..., None, :]]
    diagonal: list[Array] = []
    off_diagonal: list[Array] = []
    check = 4
    while True:
        image = np.matmul(inverse, basis[-1])
        diagonal.append(_column_dot(basis[-1], image))
        for _ in range(2):  # twice is enough to keep the basis orthogonal
            for vector in basis:
                image -= vector * _column_dot(vector, image)[..., None, :]
        beta = np.sqrt(_column_dot(image, image))
        beta = np.where(beta > 1e-14 * np.abs(diagonal[0]), beta, 0.0)
        depth = len(basis)
        if depth in (m, check) or not beta.any():
            coefficients, residual = _solve_small(diagonal, off_diagonal, norm, beta, radius)
            if depth == m or not (outside & (residual > RESIDUAL_TOLERANCE)).any():
                break
            check *= 2
        off_diagonal.append(beta)
        basis.append(image / np.where(beta > 0, beta, 1.0)[..., None, :])
    projected = sum(vector * coefficients[..., i][..., None, :] for i, vector in enumerate(basis))
    np.copyto(theta, projected, where=outside[..., None, :])


def _column_dot(left: Array, right: Array) -> Array:
    """The inner products of the columns of two arrays (..., m, q)."""
    return np.asarray(np.vecdot(left.mT, right.mT))


def _solve_small(
    diagonal: list[Array], off_diagonal: list[Array], norm: Array, beta: Array, radius: float
) -> tuple[Array, Array]:
    """Coordinates of the projection in the Krylov basis (..., q, depth), and the residual relative to θ (..., q)."""
    depth = len(diagonal)
    tridiagonal = np.zeros((*norm.shape, depth, depth))
    for i, value in enumerate(diagonal):
        tridiagonal[..., i, i] = value
    for i, value in enumerate(off_diagonal):
        tridiagonal[..., i, i + 1] = tridiagonal[..., i + 1, i] = value
    eigenvalues, vectors = np.linalg.eigh(tridiagonal)
    start = vectors[..., 0, :] * norm[..., None]
    mu = _secular_root(eigenvalues, start**2, radius)
    coefficients = np.vecdot(vectors, (start / (1.0 + mu[..., None] * eigenvalues))[..., None, :])
    residual = mu * beta * np.abs(coefficients[..., -1]) / np.maximum(norm, 1e-300)
    return coefficients, residual


def _secular_root(eigenvalues: Array, weights: Array, radius: float) -> Array:
    """μ >= 0 with Σ weights / (1 + μ·eigenvalue)² = radius²; 0 where the sum at 0 is already below.

    Newton on 1/‖x(μ)‖ = 1/radius, which is nearly linear in μ and concave, so it climbs without overshooting.
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
