"""Hugging Face folders: every tensor equals that of the model, and an incomplete folder is
refused."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from eventtensor.errors import (
    BadModelFile,
    MissingTensor,
    UnexpectedTensor,
    UnsupportedTensorType,
    WrongTensorShape,
)
from eventtensor.llm.weights.checkpoint import shapes
from eventtensor.llm.weights.formats.hf_checkpoint import HfCheckpoint


def expected(model) -> dict[str, np.ndarray]:
    """By logical name, from the modules of the model: no names of files are in it."""
    out = {"embed": model.model.embed_tokens.weight, "head": model.lm_head.weight,
           "final_norm": model.model.norm.weight}
    for k, layer in enumerate(model.model.layers):
        a, m = layer.self_attn, layer.mlp
        own = {"attn_norm": layer.input_layernorm, "wq": a.q_proj, "wk": a.k_proj, "wv": a.v_proj,
               "wo": a.o_proj, "mlp_norm": layer.post_attention_layernorm}
        if hasattr(a, "q_norm"):
            own |= {"q_norm": a.q_norm, "k_norm": a.k_norm}
        if hasattr(m, "experts"):
            own["router"] = m.gate
            both, down = m.experts.gate_up_proj, m.experts.down_proj
            for e in range(len(down)):
                gate, up = both[e].chunk(2)
                out |= {f"layers.{k}.experts.{e}.{n}": x
                        for n, x in (("w_gate", gate), ("w_up", up), ("w_down", down[e]))}
        else:
            own |= {"w_gate": m.gate_proj, "w_up": m.up_proj, "w_down": m.down_proj}
        out |= {f"layers.{k}.{n}": x.weight for n, x in own.items()}
    return {name: tensor.detach().float().numpy() for name, tensor in out.items()}


def edit(folder, change) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


@pytest.mark.parametrize("family", ["llama", "qwen3", "qwen3_moe"])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_every_tensor_is_the_models(save, family, tied, dtype):
    saved = save(family, dtype, tie_word_embeddings=tied)
    found, wanted = HfCheckpoint(saved.folder), expected(saved.model)
    assert found.config.tied is tied and found.config.qk_norm is (family != "llama")
    assert set(shapes(found.config)) | {"head"} == set(wanted)
    for name, tensor in wanted.items():
        array = found.tensor(name)
        assert array.dtype == (ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float32), name
        np.testing.assert_array_equal(array.astype(np.float32), tensor)


def test_shards_are_one_checkpoint(save):
    saved = save("llama", shard="40KB")
    found = HfCheckpoint(saved.folder)
    assert len(found.files) > 2
    for name, tensor in expected(saved.model).items():
        np.testing.assert_array_equal(found.tensor(name), tensor)


def test_the_generation_config_knows_the_end_tokens(save):
    folder = save("qwen3").folder
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 8]}))
    assert HfCheckpoint(folder).config.eos == (7, 8)


def test_a_missing_tensor_is_named_with_its_shape(save):
    folder = save("llama").folder
    edit(folder, lambda t: t.pop("model.layers.1.mlp.up_proj.weight"))
    with pytest.raises(MissingTensor, match=r"layers.1.mlp.up_proj.weight.*\(96, 64\)"):
        HfCheckpoint(folder)


def test_a_missing_expert_is_named_with_its_shape(save):
    folder = save("qwen3_moe").folder
    edit(folder, lambda t: t.pop("model.layers.1.mlp.experts.3.down_proj.weight"))
    with pytest.raises(MissingTensor, match=r"layers.1.mlp.experts.3.down_proj.weight.*\(64, 48\)"):
        HfCheckpoint(folder)


def test_an_unexpected_tensor_is_named(save):
    folder = save("llama").folder
    key = "model.layers.0.self_attn.q_proj.bias"
    edit(folder, lambda t: t.update({key: np.zeros(64, np.float32)}))
    with pytest.raises(UnexpectedTensor, match=r"layers.0.self_attn.q_proj.bias \(64,\)"):
        HfCheckpoint(folder)


def test_a_wrong_shape_is_named_with_the_right_one(save):
    folder = save("llama").folder
    edit(folder, lambda t: t.update({"model.norm.weight": np.zeros(32, np.float32)}))
    with pytest.raises(WrongTensorShape, match=r"model.norm.weight is \(32,\).*\(64,\)"):
        HfCheckpoint(folder)


def test_a_type_that_cannot_be_read_is_named(save):
    folder = save("llama").folder
    edit(folder, lambda t: t.update({"model.norm.weight": np.zeros(64, np.int8)}))
    with pytest.raises(UnsupportedTensorType, match=r"model.norm.weight is I8.*BF16, F16, F32"):
        HfCheckpoint(folder)


def test_a_tied_head_may_be_there_if_it_is_the_embedding(save):
    saved = save("llama", tie_word_embeddings=True)
    embed = expected(saved.model)["embed"]
    edit(saved.folder, lambda t: t.update({"lm_head.weight": embed}))
    np.testing.assert_array_equal(HfCheckpoint(saved.folder).tensor("head"), embed)
    edit(saved.folder, lambda t: t.update({"lm_head.weight": embed + 1}))
    with pytest.raises(UnexpectedTensor, match=r"lm_head.weight differs"):
        HfCheckpoint(saved.folder).tensor("head")
    edit(saved.folder, lambda t: t.update({"lm_head.weight": embed[:3]}))
    with pytest.raises(WrongTensorShape, match=r"lm_head.weight"):
        HfCheckpoint(saved.folder).tensor("head")


def test_frequencies_of_rope_may_be_in_the_file(save):
    folder = save("llama").folder
    key = "model.layers.0.self_attn.rotary_emb.inv_freq"
    edit(folder, lambda t: t.update({key: np.zeros(8, np.float32)}))
    HfCheckpoint(folder)


def test_a_folder_that_is_not_whole_is_refused(save, tmp_path):
    with pytest.raises(BadModelFile, match=r"config.json cannot be read"):
        HfCheckpoint(tmp_path / "nowhere")
    folder = save("llama", shard="40KB").folder
    shard = sorted(folder.glob("*.safetensors"))[0]
    whole = shard.read_bytes()
    shard.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadModelFile, match=shard.name):
        HfCheckpoint(folder)
    shard.unlink()
    with pytest.raises(BadModelFile, match=shard.name):
        HfCheckpoint(folder)
    (folder / "model.safetensors.index.json").unlink()
    with pytest.raises(BadModelFile, match=r"neither model.safetensors"):
        HfCheckpoint(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(BadModelFile, match="is not JSON"):
        HfCheckpoint(folder)


def test_an_index_must_keep_its_promises(save):
    folder = save("llama", shard="40KB").folder
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"]["model.extra"] = sorted(index["weight_map"].values())[0]
    path.write_text(json.dumps(index))
    with pytest.raises(MissingTensor, match=r"promises model.extra"):
        HfCheckpoint(folder)


def test_a_name_that_no_model_has_is_an_error(save):
    found = HfCheckpoint(save("llama").folder)
    with pytest.raises(MissingTensor, match="q_norm"):
        found.tensor("layers.0.q_norm")
    with pytest.raises(MissingTensor, match=r"layers.2"):
        found.tensor("layers.2.wq")
