"""Features of vectors: what they compute, copy, and refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from lstd_agent import (
    FourierBasis,
    Kernel,
    OneHot,
    Polynomial,
    RadialBasis,
    RandomFourier,
    Standardized,
    TileCoding,
)
from lstd_agent.arrays import FloatArray
from lstd_agent.errors import InvalidInputError, NotFittedError
from lstd_agent.features.rows import as_rows, is_sparse
from lstd_agent.trials.encoding import make_encoding

RNG = np.random.default_rng(0)


def scaler(samples: Any) -> Any:
    """A transformer of scikit-learn, whose import takes seconds."""
    from sklearn.preprocessing import StandardScaler

    return StandardScaler().fit(samples)


def test_the_fourier_basis_consists_of_cosines_over_the_box() -> None:
    basis = FourierBasis([0.0, -1.0], [2.0, 1.0], order=2)
    x = RNG.uniform([0.0, -1.0], [2.0, 1.0], size=(7, 2))
    u, v = x[:, 0] / 2.0, (x[:, 1] + 1.0) / 2.0
    expected = [np.cos(np.pi * (i * u + j * v)) for i in range(3) for j in range(3)]
    assert_allclose(basis(x), np.transpose(expected), atol=1e-12)
    # Orthogonal over the box, by the midpoint rule on a grid.
    grid = (np.arange(64) + 0.5) / 64
    gram = FourierBasis(0.0, 1.0, 5)(grid)
    assert_allclose(gram.T @ gram / 64, np.diag([1.0] + [0.5] * 5), atol=1e-12)


def test_random_fourier_features_approximate_the_gaussian_kernel() -> None:
    x = RNG.normal(size=(20, 3))
    features = RandomFourier(20_000, width=1.5, seed=1)
    f = features(x)
    # A mean of 20,000 products of at most 2: five standard errors are under 0.05.
    assert_allclose(f @ f.T, Kernel(width=1.5)(x, x), atol=0.05)
    assert_array_equal(RandomFourier(20_000, 1.5, 1)(x), f)


def test_kmeans_finds_groups_that_lie_apart() -> None:
    centers = np.array([[0.0, 0.0], [100.0, 0.0], [0.0, 1.0]])
    samples = np.repeat(centers, 50, axis=0) + RNG.normal(size=(150, 2)) * [1.0, 0.01]
    basis = RadialBasis.kmeans(samples, 3, seed=2)
    found = np.asarray(basis.centers)
    order = [int(np.argmin((((found - c) / samples.std(axis=0)) ** 2).sum(1))) for c in centers]
    assert sorted(order) == [0, 1, 2]
    expected = samples.reshape(3, 50, 2).mean(axis=1)
    assert_allclose(found[order], expected, rtol=1e-12)
    assert_array_equal(np.asarray(RadialBasis.kmeans(samples, 3, seed=2).centers), found)


@settings(max_examples=15)
@given(st.integers(1, 3), st.integers(1, 5), st.integers(1, 9), st.integers(0, 1000))
def test_each_tiling_lights_one_tile_wherever_an_observation_is(
    k: int, n_tiles: int, n_tilings: int, seed: int
) -> None:
    coding = TileCoding([-1.0] * k, [1.0] * k, n_tiles, n_tilings)
    x = np.random.default_rng(seed).normal(size=(20, k)) * 2.0
    f = coding(x)
    assert f.format == "csr"
    assert f.shape == (20, n_tilings * (n_tiles + 1) ** k)
    assert_array_equal(f.toarray().reshape(20, n_tilings, -1).sum(axis=2), 1.0)
    f.check_format(full_check=True)


def test_parameters_are_copied_and_cannot_be_written_to() -> None:
    centers, low = np.array([[0.0], [1.0]]), np.zeros(2)
    basis, tiles = RadialBasis(centers, 1.0), TileCoding(low, [1.0, 1.0])
    x = np.array([[0.5]])
    before = basis(x)
    centers[:], low[:] = 9.0, 0.9
    assert_array_equal(basis(x), before)
    assert_array_equal(np.asarray(tiles.low), [0.0, 0.0])
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(basis.centers)[0] = 1.0


def test_standardized_features_use_standardized_observations() -> None:
    samples = RNG.normal(size=(500, 2)) * [3.0, 0.1] + [10.0, -1.0]
    features = Standardized(Polynomial(1)).measured(samples)
    f = features(samples)
    assert_allclose(f[:, 1:].mean(axis=0), 0.0, atol=1e-12)
    assert_allclose(f[:, 1:].std(axis=0), 1.0)
    constant = Standardized(Polynomial(1)).measured(np.full((9, 1), 0.1))
    assert_allclose(constant(np.array([[0.1]])), [[1.0, 0.0]], atol=1e-12)
    scaled = Standardized(scaler(samples)).measured(samples)
    assert scaled(samples).shape == (500, 2)
    with pytest.raises(NotFittedError, match=r"measured\(samples\)"):
        Standardized(Polynomial(1))(samples)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RadialBasis([1.0, 2.0], 1.0), r"shape \(d, k\)"),
        (lambda: RadialBasis([[1.0]], 0.0), "width must be positive"),
        (lambda: RadialBasis.grid(0.0, 1.0, 1), "centers n must be at least 2; got 1"),
        (lambda: RadialBasis.grid(1.0, 0.0, 3), "low below high"),
        (lambda: RadialBasis([[1.0]], 1.0)(np.zeros((3, 2))), "of 1 dimensions; got 2"),
        (lambda: TileCoding(0.0, np.inf), "low and high must be finite"),
        (lambda: TileCoding(0.0, 1.0, 0), "n_tiles must be at least 1"),
        (lambda: TileCoding(0.0, 1.0)(np.zeros((3, 2))), "of 1 dimensions; got 2"),
        (lambda: Polynomial(-1), "degree of a Polynomial must be at least 0"),
        (lambda: TileCoding(0.0, 20.0, 5.0, 2), "n_tiles must be an integer; got 5.0"),  # type: ignore[arg-type]
        (lambda: TileCoding(0.0, 20.0, 5, 2.5), "n_tilings must be an integer; got 2.5"),  # type: ignore[arg-type]
        (lambda: TileCoding("a", 20.0), "low and high must be numbers; got 'a'"),
        (lambda: TileCoding([0.0] * 12, [1.0] * 12), "too many features"),
        (lambda: RadialBasis.grid(0, 1, 2.5), "n must be an integer; got 2.5"),  # type: ignore[arg-type]
        (lambda: RadialBasis([["a"]], 1.0), "centers must be numbers"),
        (lambda: RadialBasis([[np.nan]], 1.0), "centers must be finite"),
        (lambda: RadialBasis.kmeans(np.zeros((9, 2)), 3), "different samples as centers, 3; got 1"),
        (
            lambda: RadialBasis.kmeans(np.zeros((9, 2)), 1),
            "number of centers n must be at least 2; got 1",
        ),
        (lambda: Polynomial(1.5), "degree of a Polynomial must be an integer; got 1.5"),  # type: ignore[arg-type]
        (lambda: Polynomial(1, "a"), "scale of a Polynomial must be numbers; got 'a'"),  # type: ignore[arg-type]
        (lambda: FourierBasis(0, 1, -1), "order must be at least 0; got -1"),
        (lambda: FourierBasis([0] * 12, [1] * 12, 9), "too many features"),
        (lambda: RandomFourier(0), "features d must be at least 1; got 0"),
        (lambda: RandomFourier(3, -1.0), "width must be positive"),
        (lambda: RandomFourier(3, [1.0, 2.0])(np.zeros((3, 1))), "of 2 dimensions; got 1"),
        (lambda: Standardized(np.eye(3)), "only functions and transformers"),
        (lambda: Standardized(OneHot()), r"only functions and transformers .* got OneHot\(\)"),
        (lambda: Standardized(Polynomial(1), [0.0]), "both mean and deviation"),
        (lambda: Standardized(Polynomial(1), [0.0], [0.0]), "deviation positive"),
        (lambda: Polynomial(1)(np.float64(3.0)), r"one a row; got the number 3\.0"),  # type: ignore[arg-type]
    ],
)
def test_impossible_parameters_are_refused(make: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        make()


def test_sparse_rows_stay_sparse_and_are_checked_like_dense_ones() -> None:
    for kind in (sparse.csr_array, sparse.csc_matrix, sparse.coo_array):
        rows = as_rows(kind(np.eye(3)), 3)
        assert is_sparse(rows)
        assert rows.format == "csr"
    with pytest.raises(InvalidInputError, match=r"shape \(3, d\).* got \(4, 4\)"):
        as_rows(sparse.eye_array(4), 3)
    with pytest.raises(InvalidInputError, match="feature 1 of observation 1 is inf"):
        as_rows(sparse.diags_array([1.0, np.inf, 1.0]), 3)
    with pytest.raises(InvalidInputError, match="must be an array of real numbers"):
        as_rows(sparse.eye_array(3) * 1j, 3)


def test_sparse_and_dense_features_agree_for_tables_functions_and_pipelines() -> None:
    grid = np.arange(5.0)[:, None]
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    pipeline = make_pipeline(OneHotEncoder().fit(grid))
    assert is_sparse(pipeline.transform(grid))
    box, discrete = spaces.Box(0.0, 4.0, (1,)), spaces.Discrete(5)
    cases: list[tuple[Any, Any]] = [
        (box, pipeline),
        (box, lambda x: sparse.csr_array(x == np.arange(5))),
        (discrete, sparse.eye_array(5)),
        (discrete, pipeline),
    ]
    for space, features in cases:
        for ends in (False, True):
            encoding = make_encoding(space, features, ends)
            states = encoding.encode(grid if space is box else np.arange(5))
            assert is_sparse(encoding.rows(states))
            assert_array_equal(encoding.features(states), np.eye(5))
    ended = np.array([[np.nan], [2.0], [np.nan]])
    rows = make_encoding(box, pipeline, True).rows(ended)
    assert_array_equal(rows.toarray(), [[0] * 5, [0, 0, 1, 0, 0], [0] * 5])


def test_functions_may_compute_in_place_and_return_one_array_again_and_again() -> None:
    buffer = np.empty((9, 2))

    def features(x: FloatArray) -> FloatArray:
        x -= 1.0
        buffer[: len(x)] = np.hstack((x, x**2))
        return buffer[: len(x)]

    encoding = make_encoding(spaces.Box(-9.0, 9.0, (1,), np.float64), features, False)
    states = np.array([[1.0], [3.0]])
    before = encoding.rows(states)
    encoding.rows(states + 4.0)
    assert_array_equal(before, [[0.0, 0.0], [2.0, 4.0]])
    assert_array_equal(states, [[1.0], [3.0]])


def test_functions_that_return_another_number_of_features_are_refused() -> None:
    encoding = make_encoding(
        spaces.Box(-9.0, 9.0, (1,)), lambda x: np.ones((len(x), len(x) + 1)), False
    )
    encoding.rows(np.zeros((2, 1)))
    with pytest.raises(InvalidInputError, match="3 features before, and 6 of 5 observations"):
        encoding.rows(np.zeros((5, 1)))


FAILS, IS_WRONG = "features failed with .*take a batch", "features .*take a batch"


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (lambda x: [x[0], x[1] ** 2], FAILS),
        (lambda x: np.array([x[0], x[1]]), FAILS),
        (lambda x: np.concatenate([[1.0], x]), FAILS),
        (lambda x: [float(x[0]), 1.0], FAILS),
        (lambda x: [x @ x, 1.0], FAILS),
        (lambda x: np.c_[x["speed"], x["place"]], FAILS),
        (lambda x: [1.0, *x], IS_WRONG),
        (lambda x: x[0], IS_WRONG),
        (lambda x: x.sum(), IS_WRONG),
        (lambda x: np.outer(x, x).ravel(), IS_WRONG),
        (lambda x: [x[0]], IS_WRONG),
        (lambda x: x / np.linalg.norm(x), "in a batch of 2, and alone .*each row by itself"),
        (lambda x: x - x.mean(), "in a batch of 2, and alone .*each row by itself"),
        (lambda x: sparse.csr_array(np.exp(x) / np.exp(x).sum()), "in a batch of 2, and alone"),
    ],
)
def test_functions_of_one_vector_are_told_to_take_batches(features: Any, message: str) -> None:
    encoding = make_encoding(spaces.Box(-9.0, 9.0, (2,)), features, False)
    alike, different = np.ones((2, 2)), np.array([[1.0, 2.0], [3.0, 7.0]])  # as many as components
    with pytest.raises(InvalidInputError, match=message):
        list(map(encoding.rows, (alike[:1], alike, different)))
    if message is FAILS:
        with pytest.raises(InvalidInputError) as caught:
            encoding.rows(alike[:1])
        assert isinstance(caught.value.__cause__, IndexError | TypeError | ValueError)


@pytest.mark.parametrize(
    "features",
    [
        lambda s: [s, s**2, s**3],
        lambda s: [s >= i for i in range(3)],
        lambda s: [1.0, s],
        lambda s: s,
        lambda s: [1.0, 0.0] if s > 1 else [0.0, 1.0],
        lambda s: np.eye(3)[int(s)],
    ],
)
def test_functions_of_one_state_are_told_to_take_batches(features: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"features take a batch \(n,\), here"):
        make_encoding(spaces.Discrete(3), features, False)


def test_features_in_single_precision_need_not_be_equal_alone_and_in_a_batch() -> None:
    weights = RNG.normal(size=(3, 50)).astype(np.float32)

    def features(x: FloatArray) -> Any:
        return np.float32(x) @ weights * np.float32(1.0 + 1e-6 * len(x))

    encoding = make_encoding(spaces.Box(-9.0, 9.0, (3,)), features, False)
    assert encoding.rows(RNG.normal(size=(40, 3))).shape == (40, 50)


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
def test_features_whose_products_would_not_be_finite_are_refused(make: Any) -> None:
    rows = np.eye(3)
    rows[1, 2] = -1e101
    with pytest.raises(InvalidInputError, match=r"at most 1e\+100 in size; feature 2 of observ"):
        as_rows(make(rows), 3)
    rows[1, 2] = -1e100
    assert as_rows(make(rows), 3)[1, 2] == -1e100
