"""An honest mistake at one site is seen, and does not become everybody's."""

from __future__ import annotations

import json
import logging
import warnings

import numpy as np
import polars as pl
import pytest
from sklearn.metrics import adjusted_rand_score

from cli.calls import call
from fedhk import EFKMVC, FedHKPerson, Participation
from fedhk.data.folders import write_site
from fedhk.data.views import check_views
from fedhk.datasets import make_sites
from fedhk.errors import DataError, QuorumError
from fedhk.estimators.loading import load
from fedhk.federation.remote.own_rows import check_policy_bounds
from fedhk.privacy import DifferentialPrivacy
from remote_sites import NAMES, Wire, fit_remote, write_sites

OFF = "site-03"
QUICK = {"n_init": 5, "random_state": 0}


@pytest.fixture(scope="module")
def data():
    return make_sites(10, 60, 3, (6, 5), separation=8, random_state=1)


def all_columns(views):
    return [1000 * view for view in views]


def one_column(views):
    first = views[0].copy()
    first[:, 2] *= 1000
    return [first, *views[1:]]


def codes(views):
    first = views[0].copy()
    first[:20, 2] = -9999
    return [first, *views[1:]]


def broken_cell(views):
    first = views[0].copy()
    first[0, 2] = 1e30
    return [first, *views[1:]]


def score(model, data):
    """Agreement over the rows of all sites but the one that is off."""
    names = [name for name in data.sites if name != OFF]
    parts = ([labels[name] for name in names] for labels in (data.site_labels, model.labels_))
    return adjusted_rand_score(*map(np.concatenate, parts))


class TestOneOfTenSites:
    """Attack 8: all columns x 1000 at 1 of 10 sites took the ARI of all from .918 to .000, without a word."""

    @pytest.mark.parametrize("mistake", [all_columns, one_column, codes, broken_cell])
    def test_the_site_is_named_and_the_others_keep_their_model(self, data, mistake):
        with pytest.warns(UserWarning, match=rf"{OFF}: view_0/column 2|{OFF}: view_0/column \d \(and 5 more"):
            model = EFKMVC(3, **QUICK).fit(data.sites | {OFF: mistake(data.sites[OFF])})
        without = EFKMVC(3, **QUICK).fit({name: views for name, views in data.sites.items() if name != OFF})
        assert abs(score(model, data) - score(without, data)) <= 0.02
        assert score(model, data) > 0.8
        assert OFF not in model.labels_
        assert "elsewhere" in model.history_[0]["refused"][OFF]
        assert all(record["clients"] == 9 for record in model.history_)
        assert {record["site"] for record in model.deviations_ if record["excluded"]} == {OFF}

    def test_the_warning_says_what_to_do(self, data):
        with pytest.warns(UserWarning, match=OFF) as caught:
            EFKMVC(3, **QUICK).fit(data.sites | {OFF: one_column(data.sites[OFF])})
        (text,) = [str(warning.message) for warning in caught]
        for part in ("Left out of the model: 'site-03'", "Mend the data", "Participation(deviating='warn')"):
            assert part in text

    def test_honest_sites_raise_no_warning(self, data):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert EFKMVC(3, **QUICK).fit(data.sites).deviations_ == []

    def test_warn_keeps_the_site(self, data):
        keep = Participation(deviating="warn")
        with pytest.warns(UserWarning, match=OFF):
            model = EFKMVC(3, participation=keep, **QUICK).fit(data.sites | {OFF: one_column(data.sites[OFF])})
        assert OFF in model.labels_
        assert not any(record["excluded"] for record in model.deviations_)

    def test_refuse_stops_the_run(self, data):
        with pytest.raises(DataError, match=rf"{OFF}: view_0/column 2 .*deviating='warn'"):
            EFKMVC(3, participation=Participation(deviating="refuse"), **QUICK).fit(
                data.sites | {OFF: one_column(data.sites[OFF])}
            )

    def test_with_two_sites_there_is_a_warning_and_nothing_else(self, data):
        two = {name: data.sites[name] for name in ("site-00", OFF)}
        two[OFF] = [1e6 * view for view in two[OFF]]
        with pytest.warns(UserWarning, match=f"{OFF}: .* larger than elsewhere"):
            model = EFKMVC(3, **QUICK).fit(two)
        assert set(model.labels_) == set(two)

    def test_what_was_found_stays_with_the_model(self, data, tmp_path):
        with pytest.warns(UserWarning, match=OFF):
            model = EFKMVC(3, **QUICK).fit(data.sites | {OFF: one_column(data.sites[OFF])})
        model.save(tmp_path / "model.safetensors")
        assert load(tmp_path / "model.safetensors").deviations_ == model.deviations_

    def test_a_resumed_run_still_leaves_the_site_out(self, data, tmp_path):
        sites = data.sites | {OFF: one_column(data.sites[OFF])}
        with pytest.warns(UserWarning, match=OFF):
            whole = EFKMVC(3, **QUICK).fit(sites)
        with pytest.raises(QuorumError):  # too few answers from the second round on
            EFKMVC(3, checkpoint=tmp_path / "run", participation=_FewLater(), **QUICK).fit(sites)
        with pytest.warns(UserWarning, match=OFF):
            resumed = EFKMVC(3, checkpoint=tmp_path / "run", **QUICK).fit(sites, resume=True)
        assert set(resumed.labels_) == set(whole.labels_) == set(sites) - {OFF}
        np.testing.assert_array_equal(resumed.labels_["site-00"], whole.labels_["site-00"])

    def test_other_estimators_do_the_same(self, data):
        with pytest.warns(UserWarning, match="Left out of the model"):
            model = FedHKPerson(3, **QUICK).fit(data.sites | {OFF: all_columns(data.sites[OFF])})
        assert OFF not in model.labels_


def _FewLater():
    """Ten answers are needed, and only nine come once a site is left out."""
    return Participation(min_sites=10)


class TestHiddenSites:
    """Under masks and noise the server sees no single site."""

    def test_masks_in_one_process_warn_and_keep_nothing(self, data):
        with pytest.warns(UserWarning, match=rf"{OFF}: .*hide single sites"):
            model = EFKMVC(3, secure=True, **QUICK).fit(data.sites | {OFF: one_column(data.sites[OFF])})
        assert model.deviations_ == []
        assert OFF in model.labels_
        assert not any(record["refused"] for record in model.history_)

    def test_refuse_has_no_effect_there_and_says_so(self, data):
        with pytest.raises(ValueError, match="deviating='refuse' with secure=True"):
            EFKMVC(3, secure=True, participation=Participation(deviating="refuse")).fit(data.sites)

    def test_a_remote_site_logs_it_and_answers_as_ever(self, tmp_path, caplog):
        made = make_sites(4, 60, 3, (4, 3), separation=8, random_state=0)
        sites = dict(zip(NAMES, made.sites.values(), strict=True))
        sites["pisa"] = one_column(sites["pisa"])
        wire = Wire(write_sites(sites, tmp_path / "data"), tmp_path / "state")
        with caplog.at_level(logging.WARNING, "fedhk.site"):
            model = fit_remote(wire, secure=True)
        assert "site 'oslo': view0/view0_2: rows lie about" in caplog.text
        assert not any(record["refused"] for record in model.history_)
        assert "rows lie" not in json.dumps(list(model.history_))


class TestBounds:
    """Attack 21: bounds that cut everything spent epsilon 4 on pure noise, without a word."""

    def budget(self, *bounds):
        return DifferentialPrivacy(4.0, 1e-6, bounds, rounds=2)

    def raw(self, data, middle):
        return {name: [view + middle for view in views] for name, views in data.sites.items()}

    def test_bounds_that_cut_most_cells_are_refused_before_any_budget_is_spent(self, data, tmp_path):
        privacy = DifferentialPrivacy(4.0, 1e-6, (-4, 4), rounds=2, ledger=tmp_path / "ledger")
        with pytest.raises(ValueError, match=r"site 'site-00': 100 % of the cells of view 'view_0' .* units of your"):
            EFKMVC(3, privacy=privacy, **QUICK).fit(self.raw(data, 140.0))
        assert not list((tmp_path / "ledger").glob("*")) if (tmp_path / "ledger").exists() else True

    def test_bounds_that_cut_some_cells_are_named(self, data):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            EFKMVC(3, privacy=self.budget(-4, 4), **QUICK).fit(self.raw(data, 2.0))
        assert any("% of the cells of view 'view_0' are outside the bounds" in str(one.message) for one in caught)

    def test_one_column_in_another_unit_is_named_however_wide_its_view_is(self):
        view = np.random.default_rng(0).normal(size=(50, 40))
        view[:, 7] *= 1000
        columns = [f"lab{j}" for j in range(40)]
        for views, name in ((check_views([view]), "column 7"), (check_views([pl.DataFrame(view, columns)]), "lab7")):
            notes = check_policy_bounds("rome", views, (-6.0, 6.0))
            assert any("2 % of the cells of view 'view_0' are outside" in n and f"most of {name!r}" in n for n in notes)

    def test_a_view_with_other_columns_than_the_bounds_is_named(self):
        views = check_views([np.zeros((9, 4)) + 0.5, np.zeros((9, 3)) + 0.5])
        pair = ([0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0])
        assert check_policy_bounds("rome", views, [pair, (0.0, 1.0)]) == []
        (note,) = check_policy_bounds("rome", views, [pair, pair])
        assert "bounds of view 'view_1' are of 4 columns" in note

    def test_wide_bounds_raise_no_warning_of_this_kind(self, data):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            EFKMVC(3, privacy=self.budget(-30, 30), **QUICK).fit(data.sites)
        assert not [one for one in caught if "outside the bounds" in str(one.message)]

    def test_no_example_of_the_help_has_bounds_in_model_units(self):
        for words in (("fit",), ("flower", "init")):
            text = call(*words, "--help").stdout
            assert "--bounds=-4,4" not in text
        assert "units of your" in call("fit", "--help").stdout

    def test_a_site_does_not_start_with_bounds_that_cut_most_of_its_rows(self, data):
        views = check_views([view + 140 for view in data.sites["site-00"]])
        with pytest.raises(DataError, match="100 % of the cells of view 'view_0'"):
            check_policy_bounds("rome", views, (-4.0, 4.0))
        assert check_policy_bounds("rome", views, (100.0, 180.0)) == []
        assert check_policy_bounds("rome", views, None) == []

    def test_bounds_of_a_run_are_only_logged_at_a_remote_site(self, tmp_path, caplog):
        made = make_sites(4, 60, 3, (4, 3), separation=8, random_state=0)
        sites = {name: [view + 140 for view in views] for name, views in zip(NAMES, made.sites.values(), strict=True)}
        wire = Wire(write_sites(sites, tmp_path / "data"), tmp_path / "state")
        with caplog.at_level(logging.WARNING, "fedhk.site"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = fit_remote(wire, privacy=self.budget(-4.0, 4.0))
        assert "site 'rome': in this run, 100 % of the cells of view 'view0' are outside the bounds" in caplog.text
        assert not any(record["refused"] for record in model.history_)


class TestSeenEverywhere:
    @pytest.fixture
    def folder(self, data, tmp_path):
        sites = dict(data.sites) | {OFF: one_column(data.sites[OFF])}
        for name, views in sites.items():
            named = {"lab": ["age", "area", "dose", "sodium", "weight", "width"]}
            write_site(tmp_path / "data" / name, {"lab": views[0]}, columns=named)
        return tmp_path / "data"

    def test_in_info_in_fit_in_the_history_and_on_the_page(self, folder, tmp_path):
        sentence = f"{OFF}: lab/dose varies about "
        assert f"Note: {sentence}" in call("info", folder).stdout.replace("\n", " ")
        run = tmp_path / "run"
        out = call("fit", folder, "--clusters", 3, "--seed", 0, "--n-init", 2, "--out", run)
        assert sentence in " ".join(out.stderr.split())
        history = json.loads((run / "history.json").read_text("utf-8"))
        assert "lab/dose varies" in history[0]["refused"][OFF]
        summary = json.loads((run / "summary.json").read_text("utf-8"))
        assert summary["deviations"][0]["text"].startswith(sentence)
        page = (run / "report.html").read_text("utf-8")
        assert "Sites to look at" in page
        assert sentence in page
        assert "could not be read" not in page
        assert sentence in " ".join(call("info", run).stdout.split())
