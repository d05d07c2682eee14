"""`fedhk.load`: what is no whole FedHK model of this version is refused with a ValueError that names the file."""

from __future__ import annotations

import json
import pickle
import struct
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save as to_bytes

import fedhk
from fedhk import EFKMVC, FedHKDiffusion, FedHKPerson, FedHKTucker, HeatKernelMVC, datasets
from fedhk.errors import ModelFileError
from fedhk.estimators.loading import ESTIMATORS
from fedhk.estimators.persistence import DIGEST, VERSION, _digest
from fedhk.federation.aggregators import SumAggregator

# few rounds are enough for a model to save
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
QUICK = {"n_init": 1, "random_state": 0, "max_rounds": 2}
MUTATIONS = 300


@pytest.fixture(scope="module")
def data():
    return datasets.make_sites(3, 40, n_clusters=3, n_features=(4, 3), shift=0.5, random_state=0)


@pytest.fixture(scope="module")
def files(data, tmp_path_factory):
    """The bytes of a model file of every kind of model."""
    folder = tmp_path_factory.mktemp("models")
    models = {
        "EFKMVC": EFKMVC(3, **QUICK, init=[view[:3] for view in data.views]),
        "FedHKPerson": FedHKPerson(3, **QUICK),
        "FedHKTucker": FedHKTucker(3, rank=(2, 2, 1), **QUICK),
        "FedHKDiffusion": FedHKDiffusion(3, **QUICK),
    }
    models = {name: model.fit(data.sites) for name, model in models.items()}
    models["HeatKernelMVC"] = HeatKernelMVC(3, n_init=1, random_state=0).fit(data.views)
    for name, model in models.items():
        model.save(folder / name)
    return {name: (folder / name).read_bytes() for name in models}


def parts(content, tmp_path):
    """The header and the arrays of a model file."""
    (tmp_path / "whole").write_bytes(content)
    with safe_open(tmp_path / "whole", framework="numpy") as file:
        header = json.loads(file.metadata()["fedhk"])
        return header, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def written(header, arrays):
    """A file with the digest that fits it: damage is told by what is missing."""
    rest = {name: value for name, value in header.items() if name != DIGEST}
    return to_bytes(arrays, metadata={"fedhk": json.dumps(rest | {DIGEST: _digest(rest, arrays)})})


def refused(content, tmp_path):
    """What is said of a file with this content."""
    path = tmp_path / "a model.safetensors"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=r"a model\.safetensors") as caught:
        fedhk.load(path)
    return str(caught.value)


def test_models_of_every_class_are_known(files):
    assert {estimator.__name__ for estimator in ESTIMATORS} == {*files, "FedHKParafac2"}


def test_files_and_paths_as_text_are_read(files, tmp_path):
    for name, content in files.items():
        path = tmp_path / name
        path.write_bytes(content)
        assert type(fedhk.load(path)).__name__ == type(fedhk.load(str(path))).__name__ == name


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        fedhk.load(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00",
        b"not a model",
        b"\xff" * 100,
        struct.pack("<Q", 2**63) + b"{}",
        struct.pack("<Q", 2) + b"{}",
        struct.pack("<Q", 4) + b"null",
        pickle.dumps({"a": 1}),
        b"PK\x03\x04" + b"\x00" * 60,
    ],
    ids=range(9),
)
def test_what_is_no_safetensors_file(content, tmp_path):
    assert "not a FedHK model" in refused(content, tmp_path)


@pytest.mark.parametrize("metadata", [None, {}, {"fedhk": "{}"}, {"fedhk": "[1]"}, {"fedhk": "null"}, {"fedhk": "}"}])
def test_a_safetensors_file_of_somebody_else(metadata, tmp_path):
    assert "not a FedHK model" in refused(to_bytes({"a": np.ones(3)}, metadata=metadata), tmp_path)


@pytest.mark.parametrize(
    ("version", "remedy"), [(1, "fit the model again"), (VERSION + 1, "upgrade FedHK"), ("2", "upgrade"), (None, "")]
)
def test_another_version(files, version, remedy, tmp_path):
    header, arrays = parts(files["EFKMVC"], tmp_path)
    said = refused(written(header | {"version": version}, arrays), tmp_path)
    assert f"version {version!r}" in said
    assert f"reads {VERSION}" in said
    assert remedy in said


def test_an_unknown_class(files, tmp_path):
    header, arrays = parts(files["EFKMVC"], tmp_path)
    header["tree"]["name"] = "FedHKMagic"
    said = refused(written(header, arrays), tmp_path)
    assert "import the module that defines FedHKMagic first" in said


@pytest.mark.parametrize("name", ["EFKMVC", "FedHKPerson", "FedHKTucker", "FedHKDiffusion", "HeatKernelMVC"])
class TestDamage:
    def test_a_file_that_ends_early(self, files, name, tmp_path):
        content = files[name]
        for end in range(0, len(content), max(1, len(content) // 40)):
            refused(content[:end], tmp_path)

    def test_a_part_that_is_missing(self, files, name, tmp_path):
        header, arrays = parts(files[name], tmp_path)
        for lost in arrays:
            refused(written(header, {key: array for key, array in arrays.items() if key != lost}), tmp_path)
        for lost in ("name", "params", "dtype", "single_table", "model"):
            tree = {key: part for key, part in header["tree"].items() if key != lost}
            refused(written(header | {"tree": tree}, arrays), tmp_path)

    def test_a_part_of_another_kind(self, files, name, tmp_path):
        header, arrays = parts(files[name], tmp_path)
        for part in header["tree"]:
            for other in (7, "text", [], {}, None, [[1]]):
                self.load_or_refuse(written(header | {"tree": header["tree"] | {part: other}}, arrays), tmp_path)

    def test_parameters_that_no_estimator_has_or_takes(self, files, name, tmp_path):
        header, arrays = parts(files[name], tmp_path)
        known = header["tree"]["params"]
        (place,) = {part[1][0] for part in known if part[0] == "n_clusters"}  # of plain JSON among what may be there
        for more in (["magic", [place, 1]], ["heat_time", [place, {"a": 1}]], ["n_clusters", [place, "many"]]):
            params = [part for part in known if part[0] != more[0]] + [more]
            self.load_or_refuse(written(header | {"tree": header["tree"] | {"params": params}}, arrays), tmp_path)

    def test_parts_that_do_not_fit_together(self, files, name, tmp_path):
        header, arrays = parts(files[name], tmp_path)
        model = header["tree"]["model"]
        names = [*model["view_names"], "one more"]
        refused(written(header | {"tree": header["tree"] | {"model": model | {"view_names": names}}}, arrays), tmp_path)
        columns = [*model["columns"], None]
        refused(written(header | {"tree": header["tree"] | {"model": model | {"columns": columns}}}, arrays), tmp_path)

    def test_arrays_of_another_length(self, files, name, tmp_path):
        header, arrays = parts(files[name], tmp_path)
        for key, array in arrays.items():
            refused(written(header, arrays | {key: array[:-1]}), tmp_path)
            refused(written(header, arrays | {key: np.append(array, array[:1])}), tmp_path)

    def test_any_damage_gives_an_error_or_a_model_that_can_be_used(self, files, name, data, tmp_path):
        rng = np.random.default_rng(sum(map(ord, name)))
        loaded = 0
        for _ in range(MUTATIONS // len(files)):
            loaded += self.load_or_refuse(mutate(files[name], rng), tmp_path, data.views)
        assert loaded < MUTATIONS // len(files) / 10  # only bytes that say nothing may change

    @staticmethod
    def load_or_refuse(content, tmp_path, views=None):
        """Whether the file was loaded; then it must be possible to use the model."""
        path = tmp_path / "damaged.safetensors"
        path.write_bytes(content)
        try:
            model = fedhk.load(path)
        except ValueError as error:
            assert "damaged.safetensors" in str(error)  # noqa: PT017 - or no error
            return False
        repr(model)
        if views is not None:
            with np.errstate(all="ignore"):
                found = model.predict_proba(views)
            assert found.shape == (len(views[0]), model.n_clusters_)
            model.save(path)
        return True


def mutate(content, rng):
    """The bytes with a few of them changed, put in, or cut out."""
    changed = bytearray(content)
    kind = rng.integers(4)
    for _ in range(rng.integers(1, 4)):
        at = int(rng.integers(len(changed)))
        if kind == 0:
            changed[at] ^= 1 << int(rng.integers(8))
        elif kind == 1:
            changed[at] = int(rng.integers(32, 127))
        elif kind == 2:
            changed[at:at] = rng.bytes(int(rng.integers(1, 9)))
        else:
            del changed[at : at + int(rng.integers(1, 9))]
    return bytes(changed)


class Mine(EFKMVC):
    """An estimator of one's own, with the parts of its parent."""


@dataclass(frozen=True)
class OwnSum(SumAggregator):
    """An aggregator of one's own."""


OWN_CLASSES = """
from dataclasses import dataclass
from fedhk import EFKMVC
from fedhk.federation.aggregators import SumAggregator

class Mine(EFKMVC):
    pass

@dataclass(frozen=True)
class OwnSum(SumAggregator):
    pass
"""


def test_estimators_and_options_of_ones_own_are_loaded_where_they_are_imported(data, tmp_path):
    path, start = tmp_path / "mine.safetensors", [view[:3] for view in data.views]
    model = Mine(3, **QUICK, init=start, aggregator=OwnSum()).fit(data.sites)
    model.save(path)
    again = fedhk.load(path)
    assert type(again) is Mine
    assert again.aggregator == OwnSum()
    for own, found in zip(again.predict(data.sites["site-00"]), model.labels_["site-00"], strict=True):
        assert own == found


def load_elsewhere(path, tmp_path, first=""):
    """What a new process makes of a file, after some lines; the message of its error, if there is one."""
    code = f"{first}\nimport fedhk\ntry:\n    print(type(fedhk.load({str(path)!r})).__name__)\n"
    code += "except fedhk.errors.ModelFileError as error:\n    print(error)\n"
    (tmp_path / "own_parts.py").write_text(OWN_CLASSES)
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)  # noqa: S603
    return done.stdout.strip()


def test_elsewhere_the_class_that_must_be_imported_is_named(data, tmp_path):
    start = [view[:3] for view in data.views]
    for name, own in (("Mine", Mine(3, **QUICK, init=start)), ("OwnSum", EFKMVC(3, **QUICK, aggregator=OwnSum()))):
        path = tmp_path / f"{name}.safetensors"
        own.fit(data.sites).save(path)
        said = load_elsewhere(path, tmp_path)
        assert f"it needs {name!r}" in said
        assert f"import the module that defines {name} first" in said
        assert "damaged" not in said
        assert load_elsewhere(path, tmp_path, "import own_parts") == type(own).__name__


def test_a_class_of_ones_own_does_not_take_the_place_of_one_of_fedhk(data, files, tmp_path):
    class EFKMVC(HeatKernelMVC):
        """A name that is taken."""

    path = tmp_path / "model"
    path.write_bytes(files["EFKMVC"])
    assert type(fedhk.load(path)) is fedhk.EFKMVC
    assert issubclass(EFKMVC, HeatKernelMVC)
