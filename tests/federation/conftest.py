"""Four sites as folders, and a wire to them."""

from __future__ import annotations

import pytest

from fedhk.data.folders import read_federation
from fedhk.data.named import named_views
from fedhk.datasets import make_sites
from remote_sites import NAMES, Wire, write_sites


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """Folders of sites that differ by shifts."""
    data = make_sites(4, 60, n_clusters=3, shift=1.0, random_state=0)
    sites = dict(zip(NAMES, data.sites.values(), strict=True))
    return write_sites(sites, tmp_path_factory.mktemp("federation"))


@pytest.fixture(scope="session")
def rows(folders):
    """The same sites, as `fit` takes them."""
    federation = read_federation(folders["rome"].parent)
    return {site.name: named_views(site) for site in federation.sites.values()}


@pytest.fixture
def wire(folders, tmp_path):
    """A transport to sites that have taken part in nothing yet."""
    return Wire(folders, tmp_path / "state")
