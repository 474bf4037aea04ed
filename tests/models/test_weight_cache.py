"""The cache of packed weights: damage is repaired, a full disk is an error, and no partial file
stays."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from eventtensor.config import environment
from eventtensor.errors import BadWeightsCache, DiskFull
from eventtensor.llm.model.model_presets import PRESETS
from eventtensor.llm.weights import weight_cache
from eventtensor.llm.weights.formats.random_checkpoint import RandomCheckpoint
from eventtensor.llm.weights.weight_cache import packed_weights

BF16 = np.dtype(ml_dtypes.bfloat16)


@pytest.fixture
def env(tmp_path):
    return environment({"ET_CACHE_DIR": str(tmp_path / "cache")})


@pytest.fixture
def counted(monkeypatch):
    """A checkpoint, and the names that are read of it."""
    found = RandomCheckpoint(PRESETS["tiny-qwen3"])
    reads = []
    true = RandomCheckpoint.tensor
    monkeypatch.setattr(RandomCheckpoint, "tensor",
                        lambda self, name: (reads.append(name), true(self, name))[1])
    return SimpleNamespace(checkpoint=found, reads=reads)


@pytest.fixture
def packed(tmp_path, env, counted):
    """A cache that holds one model: its folder, and what asks for it again."""
    file = tmp_path / "weights"
    file.write_bytes(b"one")

    def ask():
        counted.reads.clear()
        return packed_weights(counted.checkpoint, [file], "cpu", BF16, env=env)

    ask()
    (folder,) = (env.cache_dir / "weights").iterdir()
    return SimpleNamespace(folder=folder, ask=ask)


def cut_index(folder):
    (folder / "index.json").write_text((folder / "index.json").read_text()[:40])


def nested_index(folder):
    (folder / "index.json").write_text("[" * 100000)


def old_index(folder):
    (folder / "index.json").write_text(json.dumps({"embed": "bfloat16"}))


def no_index(folder):
    (folder / "index.json").unlink()


def cut_array(folder):
    path = folder / "embed.npy"
    os.truncate(path, path.stat().st_size - 1000)


def no_array(folder):
    (folder / "embed.npy").unlink()


def other_dtype(folder):
    index = json.loads((folder / "index.json").read_text())
    index["embed"]["dtype"] = "float64"
    (folder / "index.json").write_text(json.dumps(index))


def array_for_all(folder):
    (folder / "embed.npy").chmod(0o666)


@pytest.mark.parametrize("harm", [
    cut_index, nested_index, old_index, no_index, cut_array, no_array, other_dtype, array_for_all,
])
def test_damaged_weights_are_packed_again(packed, counted, harm):
    harm(packed.folder)
    found = packed.ask()
    assert counted.reads
    np.testing.assert_array_equal(found["embed"], counted.checkpoint.tensor("embed"))
    packed.ask()
    assert not counted.reads
    assert [f.name for f in packed.folder.parent.iterdir()] == [packed.folder.name]


def test_a_full_disk_is_an_error_and_leaves_nothing_behind(tmp_path, env, counted, monkeypatch):
    file = tmp_path / "weights"
    file.write_bytes(b"one")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(weight_cache.os, "posix_fallocate", full)
    with pytest.raises(DiskFull, match="No space left on device") as caught:
        packed_weights(counted.checkpoint, [file], "cpu", BF16, env=env)
    assert "ET_CACHE_DIR" in str(caught.value)
    assert not list((env.cache_dir / "weights").iterdir())


def test_arrays_have_all_their_room_before_they_are_filled(packed):
    """A store into a file with holes ends the process where the disk is full."""
    for path in packed.folder.glob("*.npy"):
        found = path.stat()
        assert found.st_blocks * 512 >= found.st_size


def test_what_a_dead_process_left_is_removed_and_what_a_live_one_writes_is_not(packed):
    home = packed.folder.parent
    dead, live, old = home / ".dead", home / ".live", home / ".old"
    for place in (dead, live, old):
        place.mkdir()
        (place / "embed.npy").write_bytes(b"half")
    (dead / ".lock").write_bytes(b"")
    os.utime(old, (0, 0))
    with (live / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        cut_index(packed.folder)
        packed.ask()
        assert sorted(f.name for f in home.iterdir()) == [".live", packed.folder.name]


def test_a_disk_that_does_not_keep_what_is_written_is_an_error(
    tmp_path, env, counted, monkeypatch
):
    file = tmp_path / "weights"
    file.write_bytes(b"one")
    monkeypatch.setattr(weight_cache, "publish_folder", lambda partial, folder: None)
    with pytest.raises(BadWeightsCache, match="does not hold what was just written"):
        packed_weights(counted.checkpoint, [file], "cpu", BF16, env=env)
