import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import StandardScaler

from fedhk import datasets
from fedhk.data.digits import _orientation_histograms
from fedhk.data.generators import HOSPITALS, MISSING_VIEWS, VIEW_WIDTHS
from fedhk.datasets import load_multiview_digits, make_hospitals, make_sites, make_two_view_shapes
from fedhk.metrics import matched_accuracy


def cluster(views, n_clusters):
    """Cluster by balanced k-means: standardised views, each divided by the root of its width."""
    joint = np.hstack([StandardScaler().fit_transform(view) / np.sqrt(view.shape[1]) for view in views])
    return KMeans(n_clusters, n_init=5, random_state=0).fit_predict(joint)


def assert_same_data(data, other):
    np.testing.assert_array_equal(data.labels, other.labels)
    for view, other_view in zip(data.views, other.views, strict=True):
        np.testing.assert_array_equal(view, other_view)


@pytest.fixture(scope="module")
def shapes():
    return make_two_view_shapes(random_state=0)


@pytest.fixture(scope="module")
def digits():
    return load_multiview_digits()


def test_public_names_are_sorted_and_exist():
    assert datasets.__all__ == sorted(datasets.__all__)
    assert all(hasattr(datasets, name) for name in datasets.__all__)


class TestTwoViewShapes:
    @staticmethod
    def radius(data, view, label, center):
        return np.hypot(*(data.views[view][data.labels == label] - center).T)

    def test_kmeans_on_standardised_columns_is_perfect(self, shapes):
        assert adjusted_rand_score(shapes.labels, cluster(shapes.views, 4)) > 0.999

    def test_every_cluster_lies_in_its_quadrant(self, shapes):
        signs = [[(-1, -1), (1, -1), (-1, 1), (1, 1)], [(-1, -1), (1, 1), (-1, 1), (1, -1)]]
        for view, expected in zip(shapes.views, signs, strict=True):
            for label, sign in enumerate(expected):
                assert tuple(np.sign(np.median(view[shapes.labels == label], axis=0))) == sign

    def test_disc(self, shapes):
        radius = self.radius(shapes, 0, 0, [-8, -8])
        assert radius.max() <= 1.5
        assert np.mean(radius**2) == pytest.approx(1.5**2 / 2, rel=0.05)  # uniform over the area

    def test_ellipse(self, shapes):
        stretched = (shapes.views[0][shapes.labels == 1] - [12, -8]) / [3.5, 1.2]
        assert 0.98 < np.hypot(*stretched.T).max() <= 1

    def test_arc_has_its_hole_and_both_ends(self, shapes):
        radius = self.radius(shapes, 0, 2, [-8, 12])
        assert radius.mean() == pytest.approx(2.8, abs=0.02)
        assert radius.std() == pytest.approx(0.2, abs=0.02)
        assert self.radius(shapes, 0, 2, [-7, 12]).min() > 1.4
        height = shapes.views[0][shapes.labels == 2][:, 1] - 12
        assert height.max() > 2.4
        assert height.min() < -2.4

    def test_trefoil(self, shapes):
        radius = self.radius(shapes, 0, 3, [12, 12])
        assert 1.4 < radius.max() < 2.1
        points = shapes.views[0][shapes.labels == 3] - [12, 12]
        lobe = np.cos(3 * (np.arctan2(points[:, 1], points[:, 0]) - np.pi / 6))
        assert np.corrcoef(lobe, radius)[0, 1] > 0.8

    def test_petals(self, shapes):
        radius = self.radius(shapes, 1, 0, [-8, -8])
        assert radius.mean() == pytest.approx(1.2 + 0.7 * 2 / np.pi, abs=0.02)

    def test_ring(self, shapes):
        radius = self.radius(shapes, 1, 1, [12, 12])
        assert 1.8 <= radius.min() < radius.max() <= 3.2
        assert radius.mean() == pytest.approx(2.5, abs=0.03)

    def test_cross_has_two_bars(self, shapes):
        points = shapes.views[1][shapes.labels == 2] - [-8, 12]
        np.testing.assert_allclose(points.var(axis=0), (4.5**2 / 12 + 0.6**2) / 2, rtol=0.08)
        assert np.corrcoef(np.abs(points).T)[0, 1] < -0.2  # far out on one axis, near on the other

    def test_heart(self, shapes):
        points = shapes.views[1][shapes.labels == 3] - [12, -8]
        np.testing.assert_allclose(points.max(axis=0), [11.2, 8.5], atol=1.0)
        np.testing.assert_allclose(points.min(axis=0), [-11.2, -11.9], atol=1.0)
        assert np.hypot(*points.T).min() > 2  # hollow

    @given(st.integers(4, 60), st.integers(0, 1000))
    def test_remainder_goes_to_the_first_clusters(self, n_samples, seed):
        data = make_two_view_shapes(n_samples, random_state=seed)
        sizes = np.bincount(data.labels, minlength=4)
        assert sizes.sum() == n_samples
        assert sizes.max() - sizes.min() <= 1
        assert (np.diff(sizes) <= 0).all()
        assert [view.shape for view in data.views] == [(n_samples, 2)] * 2

    @pytest.mark.parametrize("make", [int, np.random.default_rng, np.random.RandomState])
    def test_same_seed_same_data(self, make):
        assert_same_data(make_two_view_shapes(50, make(7)), make_two_view_shapes(50, make(7)))

    def test_other_seed_other_data(self):
        assert (make_two_view_shapes(50, 0).views[0] != make_two_view_shapes(50, 1).views[0]).all()

    def test_has_no_sites(self, shapes):
        assert shapes.sites is None
        assert repr(shapes) == "MultiViewData(10000 rows, 4 classes, views: view-0 (2), view-1 (2))"

    @pytest.mark.parametrize("n_samples", [3, 10.0, "many"])
    def test_refuses_too_few_rows(self, n_samples):
        with pytest.raises(ValueError, match="n_samples must be a whole number of at least 4, got"):
            make_two_view_shapes(n_samples)


class TestMakeSites:
    @settings(max_examples=40)
    @given(
        widths=st.lists(st.integers(1, 4), min_size=1, max_size=4),
        counts=st.fixed_dictionaries({"n_sites": st.integers(1, 8), "n_samples": st.integers(1, 20)}),
        choices=st.fixed_dictionaries(
            {
                "missing_views": st.sampled_from([0.0, 0.5, 1.0]),
                "class_mix": st.sampled_from([None, np.inf, 0.01, 1.0]),
                "random_state": st.integers(0, 1000),
            }
        ),
    )
    def test_whole_is_the_stack_of_its_sites(self, widths, counts, choices):
        data = make_sites(**counts, n_features=widths, size_spread=2, **choices)
        assert len(data.sites) == counts["n_sites"]
        assert data.labels.size == counts["n_sites"] * counts["n_samples"]
        np.testing.assert_array_equal(np.concatenate(list(data.site_labels.values())), data.labels)
        for h, width in enumerate(widths):
            parts = [
                np.full((data.site_labels[site].size, width), np.nan) if views[h] is None else views[h]
                for site, views in data.sites.items()
            ]
            np.testing.assert_array_equal(np.vstack(parts), data.views[h])
            assert any(views[h] is not None for views in data.sites.values())
        assert all(any(view is not None for view in views) for views in data.sites.values())
        assert min(labels.size for labels in data.site_labels.values()) >= 1

    def test_same_seed_same_data(self):
        assert_same_data(make_sites(random_state=4), make_sites(random_state=4))

    @staticmethod
    def residuals(data, site, h):
        """Remove the cluster means of a site: what is left is its spread."""
        return (
            data.sites[site][h]
            - data.truth.shift[site][h]
            - (data.truth.scale[site][h] * data.truth.centers[h][data.site_labels[site]])
        )

    def test_rows_follow_the_stated_shift_and_scale(self):
        data = make_sites(4, 4000, shift=2.0, scale=0.5, size_spread=0, random_state=0)
        for site in data.sites:
            for h in range(2):
                rest = self.residuals(data, site, h)
                np.testing.assert_allclose(rest.mean(axis=0) / data.truth.scale[site][h], 0, atol=0.08)
                np.testing.assert_allclose(rest.std(axis=0), data.truth.scale[site][h], rtol=0.06)

    @pytest.mark.parametrize("size", [0.0, 0.3, 2.0])
    def test_shift_and_log_scale_have_the_stated_spread(self, size):
        truth = make_sites(50, 1, n_features=(20, 20), shift=size, scale=size, random_state=0).truth
        assert np.std(list(truth.shift.values())) == pytest.approx(size, rel=0.1)
        assert np.std(np.log(list(truth.scale.values()))) == pytest.approx(size, rel=0.1)

    def test_site_means_differ_as_the_shift_says(self):
        data = make_sites(30, 100, class_mix=None, shift=1.0, scale=0.0, random_state=0)
        means = np.array([views[0].mean(axis=0) for views in data.sites.values()])
        shifts = np.array([shift[0] for shift in data.truth.shift.values()])
        centered = [value - value.mean(axis=0) for value in (means, shifts)]
        assert np.corrcoef(centered[0].ravel(), centered[1].ravel())[0, 1] > 0.9

    def test_a_parameter_changes_only_what_it_is_about(self):
        plain, shifted = (make_sites(shift=shift, random_state=0) for shift in (0.0, 1.0))
        np.testing.assert_array_equal(plain.labels, shifted.labels)
        for site in plain.sites:
            for h in range(2):
                moved = plain.sites[site][h] + shifted.truth.shift[site][h]
                np.testing.assert_allclose(moved, shifted.sites[site][h])

    @pytest.mark.parametrize(("mix", "expected"), [(None, 0.0), (np.inf, 0.0), (2.0, 3 / 16 / 9), (0.1, 3 / 16 / 1.4)])
    def test_class_mix_has_the_variance_of_the_dirichlet_law(self, mix, expected):
        truth = make_sites(400, 1, class_mix=mix, random_state=0).truth
        assert np.var(list(truth.class_mix.values())) == pytest.approx(expected, rel=0.15)

    def test_rows_follow_the_class_mix(self):
        data = make_sites(3, 5000, class_mix=1.0, random_state=0)
        for site, labels in data.site_labels.items():
            np.testing.assert_allclose(
                np.bincount(labels, minlength=4) / labels.size, data.truth.class_mix[site], atol=0.03
            )

    def test_sizes_have_the_stated_spread(self):
        sizes = [labels.size for labels in make_sites(300, 500, size_spread=0.7, random_state=0).site_labels.values()]
        assert np.std(np.log(sizes)) == pytest.approx(0.7, rel=0.1)
        equal = [labels.size for labels in make_sites(7, 50, size_spread=0, random_state=0).site_labels.values()]
        assert equal == [50] * 7

    def test_views_are_missing_as_often_as_stated(self):
        data = make_sites(400, 1, n_features=(1, 1, 1, 1), missing_views=0.3, random_state=0)
        share = np.mean([view is None for views in data.sites.values() for view in views])
        assert share == pytest.approx(0.3, abs=0.04)
        assert all(view is not None for views in make_sites(random_state=0).sites.values() for view in views)

    @pytest.mark.parametrize("width", [2, 50])
    def test_separation_does_not_depend_on_the_width(self, width):
        (centers,) = make_sites(1, 1, 300, width, separation=4.0, random_state=0).truth.centers
        squared = np.square(centers[:, None] - centers[None]).sum(axis=2)[np.triu_indices(300, 1)]
        assert np.sqrt(squared.mean()) == pytest.approx(4.0, rel=0.1)

    def test_undoing_shift_and_scale_helps(self):
        pooled, undone = [], []
        for seed in range(4):
            data = make_sites(random_state=seed)
            clean = [
                np.vstack([(data.sites[s][h] - data.truth.shift[s][h]) / data.truth.scale[s][h] for s in data.sites])
                for h in range(2)
            ]
            pooled.append(adjusted_rand_score(data.labels, cluster(data.views, 4)))
            undone.append(adjusted_rand_score(data.labels, cluster(clean, 4)))
        assert np.mean(undone) > 0.97
        assert np.mean(undone) > np.mean(pooled) + 0.02

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"n_sites": 0}, r"n_sites .* got 0"),
            ({"n_samples": 0}, r"n_samples .* got 0"),
            ({"n_clusters": -1}, r"n_clusters .* got -1"),
            ({"n_features": ()}, r"n_features .* at least one view"),
            ({"n_features": (3, 0)}, r"n_features\[1\] .* got 0"),
            ({"class_mix": 0}, r"class_mix must be a number above 0, got 0"),
            ({"shift": -1}, r"shift .* got -1"),
            ({"shift": np.inf}, r"shift must be a finite number .* got inf"),
            ({"scale": None}, r"scale .* got None"),
            ({"missing_views": 1.5}, r"missing_views must be a probability from 0 to 1, got 1.5"),
            ({"size_spread": -0.1}, r"size_spread .* got -0.1"),
            ({"separation": np.nan}, r"separation .* got nan"),
        ],
    )
    def test_says_what_is_wrong(self, change, message):
        with pytest.raises(ValueError, match=message):
            make_sites(**change)


class TestMultiviewDigits:
    def test_views_and_labels(self, digits):
        assert digits.view_names == ("pixels", "profiles", "fourier", "gradients")
        assert [view.shape for view in digits.views] == [(1797, 64), (1797, 16), (1797, 34), (1797, 32)]
        assert all(np.isfinite(view).all() for view in digits.views)
        images, labels = load_digits(return_X_y=True)
        np.testing.assert_array_equal(digits.views[0], images)
        np.testing.assert_array_equal(digits.labels, labels)

    def test_profiles_are_row_and_column_means(self, digits):
        image = digits.views[0][0].reshape(8, 8)
        np.testing.assert_allclose(digits.views[1][0], np.r_[image.mean(axis=1), image.mean(axis=0)])

    def test_fourier_keeps_every_magnitude_once(self, digits):
        full = np.abs(np.fft.fft2(digits.views[0][:20].reshape(-1, 8, 8))).reshape(20, 64)
        frequency = np.arange(8)
        opposite = ((-frequency[:, None] % 8) * 8 + (-frequency % 8)).ravel()
        once = full[:, np.arange(64) <= opposite]
        np.testing.assert_allclose(np.sort(digits.views[2][:20]), np.sort(once), atol=1e-9)

    def test_gradients_keep_every_length(self, digits):
        down, right = np.gradient(digits.views[0].reshape(-1, 8, 8), axis=(1, 2))
        np.testing.assert_allclose(digits.views[3].sum(axis=1), np.hypot(down, right).sum(axis=(1, 2)))

    def test_turning_the_image_turns_the_gradients(self):
        image = np.random.default_rng(0).random((1, 8, 8))
        upright = _orientation_histograms(image).reshape(2, 2, 8)
        turned = _orientation_histograms(np.rot90(image, axes=(1, 2))).reshape(2, 2, 8)
        np.testing.assert_allclose(np.roll(np.rot90(upright), -2, axis=2), turned)

    def test_views_together_beat_each_alone(self, digits):
        together = matched_accuracy(digits.labels, cluster(digits.views, 10))
        alone = [matched_accuracy(digits.labels, cluster([view], 10)) for view in digits.views]
        assert min(alone) > 0.4
        assert together > max(alone)


class TestHospitals:
    def test_sites_have_their_views_but_for_those_they_lack(self):
        data = make_hospitals(50)
        assert tuple(data.sites) == HOSPITALS
        for site, views in data.sites.items():
            for (name, width), view in zip(VIEW_WIDTHS.items(), views, strict=True):
                lacks = MISSING_VIEWS.get(site) == name
                assert (view is None) == lacks
                assert lacks or view.shape == (len(data.site_labels[site]), width)

    def test_pooled_rows_are_those_of_the_sites_with_nan_for_what_a_site_lacks(self):
        data = make_hospitals(50)
        ends = np.cumsum([len(labels) for labels in data.site_labels.values()])[:-1]
        np.testing.assert_array_equal(data.labels, np.concatenate(list(data.site_labels.values())))
        for h, view in enumerate(data.views):
            for part, views in zip(np.split(view, ends), data.sites.values(), strict=True):
                np.testing.assert_array_equal(part, np.full_like(part, np.nan) if views[h] is None else views[h])

    def test_is_make_sites_under_other_names(self):
        plain = make_sites(6, 50, 4, VIEW_WIDTHS.values(), shift=1.2, class_mix=1.5, random_state=3)
        data = make_hospitals(50, random_state=3)
        np.testing.assert_array_equal(data.sites["athens"][0], plain.sites["site-00"][0])
        np.testing.assert_array_equal(data.truth.shift["florence"][2], plain.truth.shift["site-05"][2])
