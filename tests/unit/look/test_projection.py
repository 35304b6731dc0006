import numpy as np
import pytest

from ensue.core.errors import InputError
from ensue.look.projection import divergence, gradient, joint_probabilities, principal, tsne

POINTS = np.random.default_rng(0).normal(size=(30, 8))
CLUSTERS = np.random.default_rng(1).normal(size=(60, 8)) + np.repeat([12, -12, 0], 20)[:, None]


def test_components_are_those_of_the_covariance():
    found, shares = principal(POINTS)
    values = np.linalg.eigvalsh(np.cov(POINTS.T))[::-1]
    np.testing.assert_allclose(found.var(0, ddof=1), values[:2])
    np.testing.assert_allclose(shares, values[:2] / values.sum())
    np.testing.assert_allclose(found.mean(0), 0, atol=1e-12)
    assert (found[np.abs(found).argmax(0), [0, 1]] > 0).all()


def test_points_in_a_plane_keep_their_distances():
    plane = np.zeros((9, 5))
    plane[:, [1, 3]] = POINTS[:9, :2]
    found, shares = principal(plane)
    distances = [np.linalg.norm(points[:, None] - points[None], axis=-1) for points in (plane, found)]
    np.testing.assert_allclose(*distances, atol=1e-12)
    assert np.isclose(shares.sum(), 1)


def test_two_words_and_one_dimension_are_enough():
    found, shares = principal(np.array([[1.0], [3.0]]))
    assert np.allclose(np.abs(found), [[1, 0], [1, 0]]) and shares.tolist() == [1.0, 0.0]


def test_probabilities_have_the_given_perplexity():
    joint = joint_probabilities(POINTS, 5.0)
    assert np.isclose(joint.sum(), 1) and np.allclose(joint, joint.T) and not joint.diagonal().any()
    manifold = pytest.importorskip("sklearn.manifold")
    distances = ((POINTS[:, None] - POINTS[None]) ** 2).sum(-1).astype(np.float32)
    squareform = pytest.importorskip("scipy.spatial.distance").squareform
    theirs = squareform(manifold._t_sne._joint_probabilities(distances, 5.0, 0))
    np.testing.assert_allclose(joint, theirs, atol=1e-5)


def test_the_gradient_is_that_of_the_divergence():
    p, y = joint_probabilities(POINTS[:9], 3.0), POINTS[:9, :2].copy()
    slope = gradient(p, y)
    for place in np.ndindex(y.shape):
        step = np.zeros_like(y)
        step[place] = 1e-6
        assert np.isclose((divergence(p, y + step) - divergence(p, y - step)) / 2e-6, slope[place], atol=1e-6)


def test_neighbours_stay_together_as_well_as_in_scikit_learn():
    manifold = pytest.importorskip("sklearn.manifold")
    found, cost = tsne(CLUSTERS, 5.0)
    distances = np.linalg.norm(found[:, None] - found[None], axis=-1) + np.diag([np.inf] * 60)
    assert (distances.argmin(1) // 20 == np.arange(60) // 20).all()
    theirs = manifold.TSNE(perplexity=5.0, method="exact", init="pca", random_state=0).fit(CLUSTERS)
    assert cost < 1.25 * theirs.kl_divergence_  # 1.18 on a processor without AVX-512


def test_tsne_is_deterministic():
    np.testing.assert_array_equal(tsne(POINTS, steps=20)[0], tsne(POINTS, steps=20)[0])


def test_too_few_and_too_many_words_are_refused():
    with pytest.raises(InputError, match="choose 4 or more, or --method pca"):
        tsne(POINTS[:3])
    with pytest.raises(InputError, match="takes too long; choose at most 3,000"):
        tsne(np.zeros((3001, 2)))
