"""Packed weights element by element against their definition, and their cache on disk."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import ClassVar

import ml_dtypes
import numpy as np
import pytest

import eventtensor as et
from eventtensor.config import environment
from eventtensor.errors import BadPacking
from eventtensor.ir.expr import Const
from eventtensor.llm.model.decoder_tasks import Matrix, Weights
from eventtensor.llm.model.llama import llama
from eventtensor.llm.model.model_config import Experts
from eventtensor.llm.model.model_presets import PRESETS
from eventtensor.llm.model.packed_layout import packed_rows, packed_shape, packed_shapes, plain_rows
from eventtensor.llm.model.step import Step
from eventtensor.llm.model.tile_sizes import Tiles, bundles_for, tiles_for
from eventtensor.llm.weights import weight_cache, weight_packing
from eventtensor.llm.weights.formats.random_checkpoint import RandomCheckpoint
from eventtensor.llm.weights.weight_cache import file_digest, packed_weights
from eventtensor.llm.weights.weight_packing import pack_weights

BF16 = np.dtype(ml_dtypes.bfloat16)
MATRICES = ("w_qkv", "w_o", "w_gate_up", "w_down", "head")


def rows_of(checkpoint, name: str, *at: int) -> np.ndarray:
    """The matrix that is packed, row by row; `at`: layer, or layer and expert."""
    def get(part):
        layer, *expert = at
        return checkpoint.tensor(".".join(
            ["layers", str(layer), *(f"experts.{e}" for e in expert), part]))

    match name:
        case "w_qkv":
            heads = checkpoint.config.kv_heads
            parts = [np.split(get(w), heads) for w in ("wq", "wk", "wv")]
            return np.concatenate([part[g] for g in range(heads) for part in parts])
        case "w_gate_up":
            gate, up = get("w_gate"), get("w_up")
            panels = [x[16 * j : 16 * j + 16] for j in range(len(gate) // 16) for x in (gate, up)]
            return np.concatenate(panels)
        case "head":
            return checkpoint.tensor("head")
        case _:
            return get({"w_o": "wo", "w_down": "w_down", "w_router": "router"}[name])


def check_packed(
    found: np.ndarray, wanted: np.ndarray, layout: str, dtype: np.dtype, bundle: int
) -> None:
    n, k = np.indices(wanted.shape)
    if layout == "cpu":
        assert found.shape == (len(wanted) // 16, wanted.shape[1], 16)
        got = found[n // 16, k, n % 16]
    else:
        spans = found.shape[1]
        span = wanted.shape[1] // spans
        assert found.shape == (len(wanted) // 16 // bundle, spans, bundle, 2, span // 8, 8, 8)
        got = found[n // 16 // bundle, k // span, n // 16 % bundle, n % 16 // 8, k % span // 8,
                    n % 8, k % 8]
    assert found.dtype == dtype and found.size == wanted.size
    np.testing.assert_array_equal(got, wanted.astype(dtype))


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-qwen3"])
@pytest.mark.parametrize("dtype", [BF16, np.dtype(np.float32)])
@pytest.mark.parametrize("layout", ["cpu", "cuda", "cuda_many"])
def test_every_element_is_where_the_layout_says(name, dtype, layout, monkeypatch):
    # Several slabs a matrix, the last one short.
    monkeypatch.setattr(weight_packing, "_SLAB", 3 * 16 * 128 + 5)
    config = dataclasses.replace(PRESETS[name], intermediate=1040)  # two pages a row of w_down
    checkpoint = RandomCheckpoint(config)
    packed = pack_weights(checkpoint, layout, dtype)
    assert {k: v.shape for k, v in packed.items()} == packed_shapes(config, layout)
    for matrix in MATRICES:
        for layer in range(1 if matrix == "head" else config.layers):
            found = packed[matrix] if matrix == "head" else packed[matrix][layer]
            check_packed(found, rows_of(checkpoint, matrix, layer), layout, dtype,
                         bundles_for(config, layout)[matrix])


@pytest.mark.parametrize("layout", ["cpu", "cuda", "cuda_many"])
def test_every_expert_is_where_the_layout_says(layout):
    checkpoint = RandomCheckpoint(PRESETS["tiny-qwen3-moe"])
    packed = pack_weights(checkpoint, layout, BF16)
    assert {k: v.shape for k, v in packed.items()} == packed_shapes(checkpoint.config, layout)
    for layer in range(2):
        router = rows_of(checkpoint, "w_router", layer)
        check_packed(packed["w_router"][layer], router, layout, BF16, 1)
        for matrix in ("w_gate_up", "w_down"):
            for expert, found in enumerate(packed[matrix][layer]):
                check_packed(found, rows_of(checkpoint, matrix, layer, expert), layout, BF16,
                             bundles_for(checkpoint.config, layout)[matrix])
    assert packed["w_down"].shape[:2] == (2, 16)


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-qwen3"])
def test_what_is_not_a_matrix_is_stacked(name):
    checkpoint = RandomCheckpoint(PRESETS[name])
    packed = pack_weights(checkpoint, "cpu", BF16)
    pairs = {"norms": ("attn_norm", "mlp_norm"), "qk_norms": ("q_norm", "k_norm")}
    for array in ("embed", "final_norm"):
        np.testing.assert_array_equal(packed[array], checkpoint.tensor(array))
    assert ("qk_norms" in packed) is (name == "tiny-qwen3")
    for array in pairs.keys() & packed.keys():
        assert packed[array].dtype == packed["final_norm"].dtype == np.float32
        for layer in range(2):
            for found, part in zip(packed[array][layer], pairs[array], strict=True):
                np.testing.assert_array_equal(found, checkpoint.tensor(f"layers.{layer}.{part}"))


def test_every_known_model_can_be_packed():
    for name, config in PRESETS.items():
        for layout in ("cpu", "cuda", "cuda_many"):
            shapes = packed_shapes(config, layout)
            mlps = config.layers * (1 if config.experts is None else config.experts.count)
            assert np.prod(shapes["w_gate_up"]) == mlps * 2 * config.intermediate \
                * config.hidden, name


def test_rows_are_the_same_after_they_were_packed():
    rows = np.arange(2 * 64 * 96).reshape(2, 64, 96)
    for bundle in (1, 2, 4):
        packed = packed_rows(rows, bundle)
        check_packed(packed[1], rows[1], "cuda", rows.dtype, bundle)
        np.testing.assert_array_equal(plain_rows(packed), rows)


def test_as_many_panels_lie_together_as_every_kernel_can_take():
    def found(name, *layout):
        """Of w_qkv, w_o, w_gate_up, w_down and the head."""
        bundles = bundles_for(PRESETS[name], *layout)
        return [bundles[matrix] for matrix in MATRICES]

    assert found("llama-3.2-1b") == [2, 1, 4, 1, 4]
    assert found("qwen3-8b") == [1, 2, 4, 2, 4]
    assert found("qwen3-30b-a3b") == [4, 1, 2, 1, 4]
    assert found("qwen3-30b-a3b", "cuda_many") == [4, 4, 4, 4, 4]
    odd = dataclasses.replace(
        PRESETS["llama-3.2-1b"], hidden=2592, heads=12, kv_heads=4, head_dim=128)
    for config in (*PRESETS.values(), odd):  # 96 rows would be 48 with many
        for many in (False, True):
            tiles = tiles_for(config, "cuda", many)
            rows = {"w_qkv": tiles.qkv, "w_o": tiles.out, "w_gate_up": tiles.gate_up,
                    "w_down": tiles.down, "head": tiles.head}
            assert all(rows[n] % (16 * b) == 0 for n, b in bundles_for(config).items())
            assert not many or all(rows[n] % (16 * b) == 0
                                   for n, b in bundles_for(config, "cuda_many").items())


def test_with_many_rows_each_worker_has_a_part_of_the_first_product():
    parts = {"llama-3.2-1b": (128, 4), "qwen3-8b": (192, 4), "qwen3-30b-a3b": (256, 4),
             "qwen3-0.6b": (128, 4), "llama-3.2-3b": (128, 3), "smollm2-135m": (16, 1)}
    for name, found in parts.items():
        tiles = tiles_for(PRESETS[name], "cuda", many=True)
        assert (tiles.qkv, tiles.qkv_parts) == found, name
    assert tiles_for(PRESETS["qwen3-8b"], "cuda").qkv_parts == 1


def test_residual_projections_have_tiles_of_128_rows_and_a_part_of_k_for_each_worker():
    found = {"llama-3.2-1b": (8, 8), "qwen3-8b": (4, 4), "qwen3-0.6b": (16, 12)}
    for name, parts in found.items():
        tiles = tiles_for(PRESETS[name], "cuda", many=True)
        assert (tiles.out, tiles.down, tiles.out_parts, tiles.down_parts) == (128, 128, *parts)


def test_rows_are_added_up_in_as_many_pieces_as_there_are_workers_for():
    c, weights = PRESETS["qwen3-8b"], Weights("cuda", et.bf16)
    tiles = tiles_for(c, "cuda", many=True)
    steps = {rows: Step(c, weights, tiles, rows, decode_only=True) for rows in (8, 16, 33, 64)}
    assert {n: step.pieces(32, 2) for n, step in steps.items()} == {8: 8, 16: 8, 33: 4, 64: 2}
    assert [steps[16].pieces(n, 1) for n in (20, 6, 9)] == [4, 2, 1]
    assert Step(c, weights, tiles, 128).pieces(32, 1) == 2
    few, many = (llama(c, weights, tokens=n, decode_only=True).build() for n in (16, 64))
    assert few.tensor("ss_mlp").shape[-1] == many.tensor("ss_mlp").shape[-1] == Const(16)


def test_sizes_that_do_not_fit_are_named():
    with pytest.raises(BadPacking, match="head: a matrix has 250 rows"):
        packed_shapes(dataclasses.replace(PRESETS["tiny-llama"], vocab=250), "cpu")
    with pytest.raises(BadPacking, match="w_qkv: a row has 100 columns"):
        packed_shapes(dataclasses.replace(PRESETS["tiny-llama"], hidden=100), "cuda")
    with pytest.raises(BadPacking, match="w_router: a matrix has 8 rows"):
        packed_shapes(dataclasses.replace(PRESETS["tiny-qwen3-moe"], experts=Experts(8, 2, True)),
                      "cpu")


def test_progress_counts_every_byte_once():
    calls = []
    packed = pack_weights(RandomCheckpoint(PRESETS["tiny-qwen3"]), "cuda", BF16,
                          lambda *now: calls.append(now))
    done, totals = [c[1] for c in calls], {c[2] for c in calls}
    assert done == sorted(done) and totals == {done[-1]}
    assert done[-1] == sum(a.nbytes for a in packed.values())
    assert {c[0] for c in calls} == set(packed)


# ---- the cache -----------------------------------------------------------------------------


class Counted(RandomCheckpoint):
    """Counts what is read of it."""

    reads: ClassVar[list[str]] = []

    def tensor(self, name):
        self.reads.append(name)
        return super().tensor(name)


@pytest.fixture
def counted():
    Counted.reads.clear()
    return Counted(PRESETS["tiny-qwen3"])


@pytest.fixture
def env(tmp_path):
    return environment({"ET_CACHE_DIR": str(tmp_path / "cache")})


def test_a_second_load_reads_nothing_but_the_cache(tmp_path, env, counted):
    file = tmp_path / "weights"
    file.write_bytes(b"one")
    first = packed_weights(counted, [file], "cuda", BF16, env=env)
    wanted = pack_weights(RandomCheckpoint(counted.config), "cuda", BF16)
    assert first.keys() == wanted.keys()
    Counted.reads.clear()
    second = packed_weights(counted, [file], "cuda", BF16, env=env)
    assert not Counted.reads
    for name, array in second.items():
        assert array.dtype == wanted[name].dtype and array.flags.c_contiguous
        assert array.ctypes.data % 64 == 0 and not array.flags.writeable
        np.testing.assert_array_equal(array, wanted[name])
        np.testing.assert_array_equal(first[name], wanted[name])


def test_other_content_layout_or_dtype_is_packed_again(tmp_path, env, counted):
    file = tmp_path / "weights"
    file.write_bytes(b"one")
    packed_weights(counted, [file], "cpu", BF16, env=env)
    before = os.stat(file)
    for change in (("cuda", BF16), ("cpu", np.dtype(np.float32))):
        Counted.reads.clear()
        packed_weights(counted, [file], *change, env=env)
        assert Counted.reads
    file.write_bytes(b"two")  # as long as before, and later
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    Counted.reads.clear()
    packed_weights(counted, [file], "cpu", BF16, env=env)
    assert Counted.reads
    copy = tmp_path / "elsewhere"
    copy.write_bytes(b"two")
    Counted.reads.clear()
    packed_weights(counted, [copy], "cpu", BF16, env=env)
    assert not Counted.reads  # the content decides, not the name


def test_a_broken_note_of_a_digest_is_made_again(tmp_path, env):
    file = tmp_path / "weights"
    file.write_bytes(b"abc")
    right = file_digest(file, env.cache_dir)
    (note,) = (env.cache_dir / "digests").iterdir()
    assert json.loads(note.read_text())["sha256"] == right
    for broken in ("", "[]", "{}", '{"path": 3}'):
        note.write_text(broken)
        assert file_digest(file, env.cache_dir) == right


def test_a_failure_leaves_nothing_behind(tmp_path, env, counted, monkeypatch):
    file = tmp_path / "weights"
    file.write_bytes(b"one")
    monkeypatch.setattr(Counted, "tensor", lambda self, name: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        packed_weights(counted, [file], "cpu", BF16, env=env)
    assert not list((env.cache_dir / "weights").iterdir())


def test_two_that_pack_at_once_end_with_one_copy(tmp_path, env, counted, monkeypatch):
    file = tmp_path / "weights"
    file.write_bytes(b"one")

    def meanwhile(*args):
        monkeypatch.setattr(weight_cache, "pack_weights", pack_weights)
        packed_weights(counted, [file], "cpu", BF16, env=env)
        return pack_weights(*args)

    monkeypatch.setattr(weight_cache, "pack_weights", meanwhile)
    found = packed_weights(counted, [file], "cpu", BF16, env=env)
    np.testing.assert_array_equal(found["embed"], counted.tensor("embed"))
    assert len(list((env.cache_dir / "weights").iterdir())) == 1


def test_random_weights_are_not_kept(env, counted):
    packed_weights(counted, (), "cpu", BF16, env=env)
    assert not env.cache_dir.exists()


def test_a_tile_must_divide_its_matrix():
    """A head of 96 rows in tiles of 64 would leave 32 tokens out."""
    config = dataclasses.replace(PRESETS["tiny-llama"], vocab=96)
    tiles = Tiles(qkv=16, out=16, gate_up=32, down=16, head=64)
    with pytest.raises(BadPacking, match="head has 96 rows: not a number of tiles of 64"):
        llama(config, Weights("cpu", et.f32), tiles)


def test_a_tile_has_whole_bundles():
    p = et.Program("tiles")
    w = Matrix(p.weight("w", packed_shape(192, 64, "cuda", 4), et.bf16), 192, 64)
    assert [w.tiles(rows) for rows in (64, 192)] == [3, 1]
    for rows in (16, 32, 48, 96, 128):
        with pytest.raises(BadPacking, match=f"w has 192 rows: not a number of tiles of {rows}"):
            w.tiles(rows)
