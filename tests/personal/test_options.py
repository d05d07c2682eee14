"""Options of own models: what they refuse, and what they make of a site's rows."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fedhk import FedHKPerson, datasets
from fedhk.data.views import check_views
from fedhk.federation.codec import pack, unpack
from fedhk.model.cluster_summary import summarise_clusters
from fedhk.model.descent import improve
from fedhk.model.passes import Passes
from fedhk.model.rows import Rows
from fedhk.personal.calibration import Calibration
from fedhk.personal.component import REPORTED
from fedhk.personal.options import GradientStep, Personal, Personalization, SiteInputs
from fedhk.tensors.low_rank import LowRankForm, LowRankParameters
from personal_sites import assign, moved_site, scan


class TestRefusals:
    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({"centers": 1.5}, "centers=1.5 must be 'auto' or a number from 0 to 1"),
            ({"centers": "all"}, "centers='all' must be 'auto' or a number from 0 to 1"),
            ({"centers": True}, "centers=True must be 'auto' or a number"),
            ({"view_weights": {"rome": -1}}, r"view_weights\['rome'\]=-1 must be 'auto' or a number from 0 to 1"),
            ({"view_weights": None}, "view_weights=None must be"),
            ({"center_pull": -1.0}, "center_pull=-1.0 must be a number of 0 or more"),
            ({"view_pull": np.nan}, "view_pull=nan must be a number of 0 or more"),
            ({"center_pull": 3, "centers": 0.5}, "center_pull=3 is used instead of centers=0.5"),
            ({"view_pull": 3, "view_weights": {"rome": 1}}, "view_pull=3 is used instead of view_weights="),
        ],
    )
    def test_values_that_cannot_be(self, given, said):
        with pytest.raises(ValueError, match=said):
            Personalization(**given)

    @pytest.mark.parametrize("step", [-0.1, 1.1, "auto", None, True])
    def test_steps_that_cannot_be(self, step):
        with pytest.raises(ValueError, match=f"step={step!r} must be a number from 0 to 1"):
            GradientStep(step)

    @pytest.mark.parametrize("given", [{"view_weights": 0.0}, {"view_weights": {"rome": 1.0}}, {"view_pull": 2.0}])
    def test_settings_without_effect(self, given):
        Personalization(**given).check(learn_weights=True, n_clusters=3)
        with pytest.raises(ValueError, match=f"{next(iter(given))}=.* has no effect .* view_weights='learned'"):
            Personalization(**given).check(learn_weights=False, n_clusters=3)

    def test_nothing_is_refused_that_was_not_given(self):
        for option in (Personalization(), Personalization(centers=0.5), Personalization(center_pull=2), GradientStep()):
            option.check(learn_weights=False, n_clusters=3)
            option.check_sites(["rome"])

    def test_sites_that_are_not_there(self):
        option = Personalization(centers={"rome": 0.5, "oslo": "auto"})
        option.check_sites(["rome", "oslo", "bern"])
        with pytest.raises(ValueError, match=r"centers has values for sites \['oslo'\] that are not there"):
            option.check_sites(["rome"])


@pytest.mark.parametrize(
    "option",
    [
        GradientStep(1),
        Personalization(),
        Personalization(centers={"rome": 1, "oslo": "auto"}, view_pull=3),
        Personalization(center_pull=np.float32(2.5), view_weights=0),
    ],
)
def test_options_are_values_that_survive_a_message(option):
    again = unpack(*pack(option, Personal), Personal)
    assert again == option
    assert type(again) is type(option)


def fit(option, model, views, *, calibrations=(), summaries=(), learn_weights=False, site="rome"):
    return option.fit(
        model, calibrations, summaries, check_views(views), site=site, learn_weights=learn_weights, workers=1
    )


@pytest.fixture(scope="module")
def summary(model):
    rows = Rows(check_views(moved_site(0, 500)), model.references)
    return summarise_clusters(rows, model.parameters, assign(rows, model.parameters)[1])


def rows_of(model, n=200):
    return Rows(check_views(moved_site(1, n, shift=0.8), min_rows=0), model.references)


def take_step(model, rows, step, learn_weights=False):
    """The parameters of a site after one gradient step."""
    return GradientStep(step).fit_rows(SiteInputs(model, rows, (), (), "rome", learn_weights, 1)).parameters


class TestGradientStep:
    def test_0_gives_the_global_model(self, model):
        found = fit(GradientStep(), model, moved_site(1, shift=0.5))
        assert found.model.parameters is model.parameters
        assert_array_equal(found.labels, found.global_labels)
        assert found.shares == {}
        assert found.report.terms.rows == 200

    def test_a_step_lowers_the_objective_of_the_site(self, model):
        found = [fit(GradientStep(step), model, moved_site(1, shift=0.5)) for step in (0.0, 0.5, 1.0)]
        objectives = [outcome.objective for outcome in found]
        assert objectives == sorted(objectives, reverse=True)

    def test_0_is_the_global_model_and_1_the_full_update(self, model):
        rows = rows_of(model)
        assert take_step(model, rows, 0.0, learn_weights=True) is model.parameters
        full = take_step(model, rows, 1.0, learn_weights=True)
        expected = improve(model.parameters, scan(rows, model.parameters), learn_weights=True)
        for one, other in zip(full.centers, expected.centers, strict=True):
            assert_allclose(one, other, atol=1e-12)
        assert_allclose(full.view_weights, expected.view_weights)

    def test_a_longer_step_never_has_a_higher_objective(self, model):
        rows = rows_of(model)
        found = [scan(rows, take_step(model, rows, step)).objective for step in np.linspace(0, 1, 6)]
        assert found == sorted(found, reverse=True)

    @pytest.mark.parametrize("step", [0.3, 1.0])
    def test_view_weights_stay_weights(self, model, step):
        own = take_step(model, rows_of(model), step, learn_weights=True)
        assert own.view_weights.sum() == pytest.approx(1.0)
        assert own.view_weights.min() >= 0
        fixed = take_step(model, rows_of(model), step)
        assert_array_equal(fixed.view_weights, model.parameters.view_weights)

    def test_a_site_without_rows_has_the_global_model(self, model):
        assert take_step(model, rows_of(model, 0), 1.0, learn_weights=True) is model.parameters

    def test_centres_of_low_rank_become_free(self, model):
        formed = LowRankForm("tucker", (2, 3, 2)).constrain(model.parameters, model.view_names)
        found = take_step(replace(model, parameters=formed), rows_of(model), 0.5)
        assert not isinstance(found, LowRankParameters)


class TestPersonalization:
    def test_a_site_that_is_moved_has_its_offset_and_others_the_global_model(self, model, summary):
        moved = fit(Personalization(), model, moved_site(1, shift=1.0), summaries=(summary,))
        alike = fit(Personalization(), model, moved_site(1), summaries=(summary,))
        assert tuple(moved.shares) == tuple(alike.shares) == REPORTED
        assert moved.shares["shift"] > 0.6
        assert alike.shares["shift"] < 0.3

    def test_a_number_for_the_centres_leaves_all_else_common(self, model, summary):
        found = fit(Personalization(centers=0.4), model, moved_site(1, shift=1.0), summaries=(summary,))
        assert found.shares == dict.fromkeys(REPORTED, 0.0) | {"centers": 0.4}
        assert found.model.references == model.references

    def test_a_dict_gives_shares_by_site_and_learns_the_others(self, model):
        option, views = Personalization(centers={"rome": 0.4, "bern": "auto"}), moved_site(1, shift=1.0)
        named, learned, other = (fit(option, model, views, site=site).shares for site in ("rome", "bern", "oslo"))
        assert named["centers"] == 0.4
        assert learned == other == fit(Personalization(), model, views).shares

    def test_a_pull_is_taken_instead_of_a_share_and_the_rest_is_learned(self, model):
        views = moved_site(1, shift=1.0)
        near, far = (fit(Personalization(center_pull=pull), model, views).shares for pull in (1e-3, 1e9))
        assert near["centers"] > 0.99
        assert far["centers"] < 1e-6
        assert far["shift"] > 0.6

    def test_without_a_summary_scale_and_sizes_are_not_looked_at(self, model, summary):
        views = [2.0 * view for view in moved_site(1)]
        assert fit(Personalization(), model, views, summaries=(summary,)).shares["spread"] > 0
        found = fit(Personalization(), model, views).shares
        assert (found["spread"], found["sizes"]) == (0.0, 0.0)

    def test_sites_that_differ_by_their_clusters_have_the_common_centres(self, model, summary):
        calibration = Calibration(0.0, 0.0, (1.0, 1.0), offsets=False)
        views = moved_site(1, shift=1.0)
        found = fit(Personalization(), model, views, calibrations=(calibration,), summaries=(summary,))
        assert (found.shares["shift"], found.shares["centers"]) == (0.0, 0.0)
        for mine, common in zip(found.model.parameters.centers, model.parameters.centers, strict=True):
            assert_array_equal(mine, common)

    def test_view_weights_are_learned_where_the_run_learns_them(self, model):
        option = Personalization(view_weights=1.0)
        own = fit(option, model, moved_site(1), learn_weights=True)
        assert own.shares["view_weights"] == 1.0
        assert own.view_distance > 0
        assert fit(Personalization(), model, moved_site(1)).view_distance == 0

    def test_embedded_rows_are_refused(self, model):
        class Embedded(type(model)):
            def rows(self, views, sample_weight=None):
                rows = super().rows(views, sample_weight)
                return replace(rows, references=tuple(replace(r) for r in rows.references))

        embedded = Embedded(model.parameters, model.references, model.view_names, model.columns)
        with pytest.raises(TypeError, match="use GradientStep"):
            fit(Personalization(), embedded, moved_site(1))
        assert len(fit(GradientStep(0.5), embedded, moved_site(1)).labels) == 200


class TestCalibratedSites:
    WHOLE = Calibration(1.0, 0.5, (0.9, 1.1), offsets=True)

    def common(self, model):
        """The model in the units of calibrated rows."""
        centers = tuple(a / factor for a, factor in zip(model.parameters.centers, self.WHOLE.factors, strict=True))
        parameters = replace(model.parameters, centers=centers)
        return replace(model, parameters=parameters, references=self.WHOLE.in_units(model.references))

    @pytest.mark.parametrize("option", [GradientStep(), GradientStep(0.5), Personalization()])
    def test_the_site_reads_its_rows_calibrated(self, model, option):
        views = moved_site(1, shift=1.5)
        found = fit(option, self.common(model), views, calibrations=(self.WHOLE,))
        rows = self.WHOLE.apply(Rows(check_views(views), model.references))
        expected = assign(rows, self.common(model).parameters)[1]
        assert_array_equal(found.global_labels, expected)
        for one, other in zip(found.model.references, rows.references, strict=True):
            assert_allclose(one.shift, other.shift, rtol=1e-12)
        again = assign(found.model.rows(check_views(views)), found.model.parameters)
        assert_array_equal(again[1], found.labels)
        assert again[2] == pytest.approx(found.objective)

    def test_the_reported_shift_is_how_much_the_site_differs_as_a_whole(self, model):
        near, far = (
            fit(Personalization(), self.common(model), moved_site(1, shift=shift), calibrations=(self.WHOLE,)).shares[
                "shift"
            ]
            for shift in (0.0, 2.0)
        )
        assert near < 0.3
        assert far > 0.8


@pytest.fixture(scope="module")
def shifted_sites():
    return datasets.make_sites(3, 60, n_clusters=3, n_features=(4, 3), shift=1.5, class_mix=None, random_state=1).sites


class TestComponents:
    """What a site may have of its own can be listed; then J + gamma R_person is fitted by itself, to the end."""

    @staticmethod
    def fit(sites, personal, **settings):
        return FedHKPerson(3, personalization=personal, calibration=None, n_init=2, random_state=0, **settings).fit(
            sites
        )

    def test_only_what_is_listed_is_learned(self, shifted_sites):
        model = self.fit(shifted_sites, Personalization(components=("sizes",)))
        found = {r["component"]: r["value"] for r in model.personalization_ if r["site"] == "site-00"}
        assert found["shift"] == found["spread"] == found["centers"] == 0
        for own in model.client_models_.values():
            assert_allclose(own.cluster_centers_[0], model.cluster_centers_[0])

    def test_the_minimum_with_the_pull_is_one(self, shifted_sites):
        """No step from the own centres, nor one more pass, lowers J + gamma R_person."""
        pull = 5.0
        model = self.fit(shifted_sites, Personalization(components=("centers",), center_pull=pull))
        common = model._model.parameters
        for site, own in model.client_models_.items():
            parameters, rows = own._model.parameters, own._rows(shifted_sites[site])
            assert parameters.sizes is None

            def total(moved, rows=rows, parameters=parameters):
                with Passes(rows, 3) as scan:
                    found = scan.statistics(replace(parameters, centers=moved))
                unit = common.heat_time * common.view_factors.max()
                apart = sum(np.sum((a - b) ** 2) for a, b in zip(moved, common.centers, strict=True))
                return found.objective + pull * unit * apart

            least, rng = total(parameters.centers), np.random.default_rng(0)
            for size in (1e-2, 1e-3):
                for _ in range(10):
                    tried = tuple(a + size * rng.normal(size=a.shape) for a in parameters.centers)
                    assert total(tried) > least

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"components": ("colour",)}, r"components=\('colour',\).*\['colour'\] are not"),
            ({"components": ()}, r"components=\(\)"),
            ({"components": ("sizes",), "center_pull": 2.0}, "center_pull=2.0 has no effect.*add 'centers'"),
            ({"components": ("sizes",), "centers": 0.5}, "centers=0.5 has no effect.*add 'centers'"),
            ({"clusters": {"rome": 0}}, r"clusters\['rome'\]=0"),
            ({"clusters": {"rome": 1.5}}, r"clusters\['rome'\]=1.5"),
            ({"clusters": 3}, "clusters=3 must say how many"),
        ],
    )
    def test_wrong_options_are_named(self, options, words):
        with pytest.raises(ValueError, match=words):
            Personalization(**options)

    def test_a_site_has_as_many_clusters_as_it_was_given(self):
        sites = datasets.make_sites(3, 60, n_clusters=3, shift=0.1, separation=6, class_mix=None, random_state=1).sites
        model = self.fit(sites, Personalization(clusters={"site-01": 2, "site-02": 1}))
        used = {site: set(labels.tolist()) for site, labels in model.labels_.items()}
        assert len(used["site-01"]) == 2
        assert len(used["site-02"]) == 1
        assert len(used["site-00"]) == 3
        largest = int(np.bincount(model.global_labels_["site-02"]).argmax())
        assert used["site-02"] == {largest}  # it keeps its number
        assert_allclose(model.memberships_["site-01"].sum(axis=1), 1.0, rtol=1e-6)
        new = model.client_models_["site-01"].predict([view + 0.1 for view in sites["site-01"]])
        assert set(new.tolist()) <= used["site-01"]

    @pytest.mark.parametrize(
        ("clusters", "words"),
        [
            ({"lima": 2}, r"clusters has values for sites \['lima'\]"),
            ({"site-00": 4}, r"clusters\['site-00'\]=4 must be"),
        ],
    )
    def test_unknown_sites_and_too_many_clusters_are_named(self, shifted_sites, clusters, words):
        with pytest.raises(ValueError, match=words):
            self.fit(shifted_sites, Personalization(clusters=clusters))
