"""The kernels of a model as a folder: results stay the same, nothing is compiled, and a folder of
another spec is refused."""

from __future__ import annotations

import json
import shutil

import pytest
from typer.testing import CliRunner

import eventtensor as et
from eventtensor import LLM, SamplingParams
from eventtensor.errors import BadArtifact
from eventtensor.llm.cli import commands
from eventtensor.llm.runner import runner_kernels as kernels_module
from examples.row_sum import row_sum

SIZES = {"target": "cpu", "dtype": "f32", "max_model_len": 256, "max_num_seqs": 4, "cache_gb": 0.01}
PARAMS = SamplingParams(seed=3, top_p=0.9, max_tokens=12)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("artifact") / "tiny"
    done = CliRunner().invoke(commands.app, ["compile", "random:tiny-llama", "-o", str(place),
                                             "--target", "cpu", "--dtype", "f32"])
    assert done.exit_code == 0, done.output
    return place


def test_an_artifact_answers_as_the_compiled_model_does(folder, monkeypatch):
    with LLM("random:tiny-llama", **SIZES) as llm:
        wanted = llm.generate([[5, 6], [9]], PARAMS)
    monkeypatch.setattr(kernels_module, "planned", None)  # nobody compiles
    with LLM("random:tiny-llama", artifact=folder, **SIZES) as llm:
        assert llm.generate([[5, 6], [9]], PARAMS) == wanted


@pytest.mark.parametrize(("model", "wrong", "shown"), [
    ("random:tiny-llama", {"dtype": "bf16"}, "dtype = 'f32'; this runner has 'bf16'"),
    ("random:tiny-qwen3", {}, "family = 'llama'; this runner has 'qwen3'"),
    ("random:tiny-llama", {"max_num_batched_tokens": 64}, "rows = 128"),
])
def test_an_artifact_for_something_else_is_refused(folder, model, wrong, shown):
    with pytest.raises(BadArtifact) as caught:
        LLM(model, artifact=folder, **SIZES | wrong)
    assert shown in caught.value.message


def test_a_folder_that_is_none_is_refused(tmp_path):
    with pytest.raises(BadArtifact, match="no artifact of a model"):
        LLM("random:tiny-llama", artifact=tmp_path, **SIZES)
    (tmp_path / "model.json").write_text(json.dumps({"version": 0}))
    with pytest.raises(BadArtifact, match="was compiled with"):
        LLM("random:tiny-llama", artifact=tmp_path, **SIZES)


def test_kernels_of_another_model_are_refused(folder, tmp_path):
    """As they are where a second compile into a folder has not come to its end."""
    mixed, row_sums = tmp_path / "mixed", tmp_path / "rows"
    shutil.copytree(folder, mixed)
    et.compile(row_sum()).save(row_sums)
    for file in row_sums.iterdir():
        shutil.copy(file, mixed / "rows_128")
    with pytest.raises(BadArtifact, match=r"other kernels than model\.json says"):
        LLM("random:tiny-llama", artifact=mixed, **SIZES)


@pytest.mark.parametrize("text", ["[]", "5", "{", "\\xff"])
def test_facts_that_are_no_table_are_refused(folder, tmp_path, text):
    shutil.copytree(folder, tmp_path / "broken")
    (tmp_path / "broken" / "model.json").write_text(text)
    with pytest.raises(BadArtifact):
        LLM("random:tiny-llama", artifact=tmp_path / "broken", **SIZES)
