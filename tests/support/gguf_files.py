"""GGUF files of tiny models, as llama.cpp's converter writes them."""

from __future__ import annotations

import gguf
import numpy as np

from eventtensor.llm.weights.checkpoint import shapes

LAYER = {"attn_norm": "attn_norm", "wq": "attn_q", "wk": "attn_k", "wv": "attn_v",
         "q_norm": "attn_q_norm", "k_norm": "attn_k_norm", "wo": "attn_output",
         "mlp_norm": "ffn_norm", "w_gate": "ffn_gate", "w_up": "ffn_up", "w_down": "ffn_down"}
ENDS = {"embed": "token_embd", "final_norm": "output_norm", "head": "output"}


def interleaved(w: np.ndarray, heads: int) -> np.ndarray:
    """Row 2i+h of a head is its row i of half h: what llama.cpp's converter does."""
    out = np.empty_like(w)
    dim = len(w) // heads
    for head in range(heads):
        for row in range(dim):
            source = head * dim + row % 2 * (dim // 2) + row // 2
            out[head * dim + row] = w[source]
    return out


def metadata(c) -> dict:
    return {
        "block_count": c.layers, "context_length": c.max_position, "embedding_length": c.hidden,
        "feed_forward_length": c.intermediate, "attention.head_count": c.heads,
        "attention.head_count_kv": c.kv_heads, "attention.key_length": c.head_dim,
        "attention.value_length": c.head_dim, "attention.layer_norm_rms_epsilon": c.norm_eps,
        "rope.freq_base": c.rope_theta, "vocab_size": c.vocab,
    }


def tensors(checkpoint) -> dict[str, np.ndarray]:
    out = {}
    for name in shapes(checkpoint.config):
        array, part = checkpoint.tensor(name).astype(np.float32), name.rpartition(".")[2]
        if checkpoint.config.family == "llama" and part in ("wq", "wk"):
            c = checkpoint.config
            array = interleaved(array, c.heads if part == "wq" else c.kv_heads)
        if part in LAYER:
            out[f"blk.{name.split('.')[1]}.{LAYER[part]}.weight"] = array
        else:
            out[f"{ENDS[name]}.weight"] = array
    return out


def write(path, config, arrays, kind="F32", more=lambda writer: None, **changes) -> None:
    """Matrices as `kind`, the rest f32; `changes` replace metadata, None takes it away; `more`
    writes other metadata."""
    writer = gguf.GGUFWriter(path, config.family)
    for key, value in (metadata(config) | changes).items():
        match value:
            case int():
                writer.add_uint32(f"{config.family}.{key}", value)
            case float():
                writer.add_float32(f"{config.family}.{key}", value)
            case str():
                writer.add_string(f"{config.family}.{key}", value)
    writer.add_bos_token_id(config.bos[0])
    writer.add_eos_token_id(config.eos[0])
    writer.add_eot_token_id(9)
    more(writer)
    for name, array in arrays.items():
        t = gguf.GGMLQuantizationType[kind if array.ndim == 2 else "F32"]
        writer.add_tensor(name, gguf.quants.quantize(array, t), raw_dtype=t)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
