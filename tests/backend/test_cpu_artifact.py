"""Kernels for threads as folders: they run as before, without compiler and proof, or say what is
wrong."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import eventtensor as et
from eventtensor.errors import BadArtifact, BadOption, CannotWrite, KernelClosed, WrongDevice
from eventtensor.runtime.cpu_artifact import is_cpu_artifact
from examples.mlp import mlp
from examples.row_sum import row_sum

X = np.random.default_rng(0).standard_normal((70, 128)).astype(np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("artifact")
    et.compile(row_sum()).save(place)
    return place


def sums(kernel, x: np.ndarray) -> np.ndarray:
    out = np.empty(len(x), np.float32)
    kernel(a=x, c=out)
    return out


def test_a_loaded_kernel_gives_the_same_bits_for_every_size(folder):
    made, loaded = et.compile(row_sum()), et.load(folder, workers=3)
    assert loaded.backend.workers == 3 and loaded.interface.name == "row_sum"
    for size in (70, 1, 33):
        np.testing.assert_array_equal(sums(loaded, X[:size]), sums(made, X[:size]))
    loaded.close()
    with pytest.raises(KernelClosed):
        sums(loaded, X)


LOADED = """
import sys
import numpy as np
import eventtensor as et
kernel = et.load(sys.argv[1])
x, y = np.ones((5, 128), np.float32), np.empty(5, np.float32)
kernel(a=x, c=y)
assert (y == 128).all()
heavy = {"islpy", "eventtensor.compiler", "eventtensor.analysis", "eventtensor.lang",
         "eventtensor.codegen.cpp"}
print(sorted(heavy & set(sys.modules)))
"""


def test_loading_imports_neither_compiler_nor_proof(folder):
    done = subprocess.run([sys.executable, "-c", LOADED, str(folder)], capture_output=True,
                          text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def broken(folder: Path, place: Path, **facts) -> Path:
    for name in ("kernel.so", "kernel.cpp"):
        (place / name).write_bytes((folder / name).read_bytes())
    found = json.loads((folder / "kernel.json").read_text()) | facts
    (place / "kernel.json").write_text(json.dumps(found))
    return place


def test_what_does_not_fit_is_refused_in_words(folder, tmp_path):
    with pytest.raises(WrongDevice, match="another processor"):
        et.load(broken(folder, tmp_path, processor="some other"))
    with pytest.raises(BadArtifact, match="ABI version 99"):
        et.load(broken(folder, tmp_path, cpu_abi=99))
    with pytest.raises(BadArtifact, match="not whole"):
        et.load(broken(folder, tmp_path, workspace="n +"))
    with pytest.raises(BadArtifact, match="not whole"):
        et.load(broken(folder, tmp_path, tensors=[{}]))
    (tmp_path / "kernel.json").unlink()
    with pytest.raises(BadArtifact, match="cannot be read"):
        et.load(tmp_path)


def cut(place: Path) -> Path:
    (place / "kernel.so").write_bytes((place / "kernel.so").read_bytes()[:7000])
    return place


def test_a_library_is_looked_at_before_it_is_loaded(folder, tmp_path):
    with pytest.raises(BadArtifact, match=r"kernel\.so is not the file that was saved"):
        et.load(cut(broken(folder, tmp_path)))
    with pytest.raises(BadArtifact, match=r"not whole: 'kernel\.so'"):
        et.load(broken(folder, tmp_path, files={}))


@pytest.mark.parametrize("facts", [
    {"dims": [{"name": "n", "min": 1, "max": "x"}]}, {"dims": [{"name": 3, "min": 1, "max": 2}]},
    {"dims": {"n": 1}}, {"workspace": "-100"}, {"workspace": "100000 // 0"}, {"workspace": "8"},
    {"buffers": [{"tensor": "zz", "offset": "0"}]}, {"buffers": [{"tensor": "b", "offset": "-64"}]},
    {"rank": -1}, {"rank": "2"}, {"rank": 10**9}, {"counts": [{"what": "w"}]}, {"calls": 3},
])
def test_facts_with_nonsense_are_refused_when_they_are_loaded(folder, tmp_path, facts):
    with pytest.raises(BadArtifact, match="not whole"):
        et.load(broken(folder, tmp_path, **facts))


@pytest.mark.parametrize("text", ["[" * 100000, "[]", "3", "", "\0"])
def test_what_are_no_facts_is_refused(folder, tmp_path, text):
    (broken(folder, tmp_path) / "kernel.json").write_text(text)
    with pytest.raises(BadArtifact, match="not the facts of a kernel"):
        et.load(tmp_path)


def test_a_cache_that_was_emptied_keeps_a_kernel_from_being_saved(tmp_path, monkeypatch):
    monkeypatch.setenv("ET_CACHE_DIR", str(tmp_path / "cache"))
    kernel = et.compile(row_sum())
    shutil.rmtree(tmp_path / "cache")
    with pytest.raises(CannotWrite, match=r"row_sum\.so") as caught:
        kernel.save(tmp_path / "saved")
    assert "compile again" in caught.value.hint
    assert np.allclose(sums(kernel, X), X.sum(axis=1))


def test_what_a_folder_held_before_does_not_decide_how_it_is_loaded(tmp_path):
    (tmp_path / "kernel.so").write_bytes(b"of threads, once")
    (tmp_path / "kernel.json").write_text('{"abi": 1}')
    assert not is_cpu_artifact(tmp_path) and not is_cpu_artifact("n" * 5000)
    (tmp_path / "kernel.json").write_text("{")
    assert is_cpu_artifact(tmp_path)


def test_debug_builds_and_the_interpreter_are_not_saved(tmp_path):
    with pytest.raises(BadOption, match="debug"):
        et.compile(row_sum(), debug=True).save(tmp_path)
    with pytest.raises(BadOption, match="save is for"):
        et.compile(mlp(), target="interp").save(tmp_path)
