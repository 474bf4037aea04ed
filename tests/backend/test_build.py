"""The cache: one compile for equal sources, everything in the key, two processes at once."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from eventtensor.config import environment
from eventtensor.errors import CompileFailed, DiskFull, NoCompiler
from eventtensor.runtime import cpp_build
from eventtensor.targets.cpu_target import CpuTarget, cpu_target

SOURCE = "extern \"C\" int answer() { return 42; }\n"


def test_a_second_build_comes_from_the_cache(tmp_path: Path) -> None:
    env = replace(environment(), cache_dir=tmp_path)
    first = cpp_build.build_library(SOURCE, "answer", env)
    second = cpp_build.build_library(SOURCE, "answer", env)
    assert first.fresh and not second.fresh and first.path == second.path
    assert first.path.with_suffix(".cpp").read_text() == SOURCE


def test_the_key_holds_all_that_changes_code(monkeypatch: pytest.MonkeyPatch) -> None:
    base = CpuTarget("/usr/bin/c++", "12", ("-O3",), "arm")
    key = cpp_build.cache_key(SOURCE, base, ("-shared",))
    others = [
        cpp_build.cache_key(SOURCE + " ", base, ("-shared",)),
        cpp_build.cache_key(SOURCE, base, ("-g",)),
        *(
            cpp_build.cache_key(SOURCE, replace(base, **change), ("-shared",))
            for change in (
                {"compiler": "/bin/c++"},
                {"version": "13"},
                {"flags": ("-O2",)},
                {"processor": "x86"},
            )
        ),
    ]
    monkeypatch.setattr(cpp_build, "device_digest", lambda *_: "other headers")
    others.append(cpp_build.cache_key(SOURCE, base, ("-shared",)))
    assert len({key, *others}) == 8


def test_two_processes_build_the_same_kernel_at_once(tmp_path: Path) -> None:
    script = f"""
import ctypes
from dataclasses import replace
from pathlib import Path
from eventtensor.config import environment
from eventtensor.runtime.cpp_build import build_library
env = replace(environment(), cache_dir=Path({str(tmp_path)!r}))
for k in range(3):
    text = f'extern "C" int answer() {{{{ return {{k}}; }}}}'
    built = build_library(text, "answer", env)
    assert ctypes.CDLL(str(built.path)).answer() == k
"""
    started = [subprocess.Popen([sys.executable, "-c", script]) for _ in range(2)]
    assert [p.wait(60) for p in started] == [0, 0]
    left = [f.name for f in tmp_path.rglob("*") if f.name.startswith(".")]
    assert not left
    assert len(list(tmp_path.rglob("answer.so"))) == 3


def test_compiler_errors_are_shown(tmp_path: Path) -> None:
    env = replace(environment(), cache_dir=tmp_path)
    with pytest.raises(CompileFailed, match="no_such_thing"):
        cpp_build.build_library("int x = no_such_thing;", "broken", env)
    assert not list(tmp_path.rglob("broken.so"))


def test_a_disk_that_is_full_for_the_compiler_is_no_fault_of_the_source(tmp_path: Path) -> None:
    compiler = tmp_path / "cxx"
    compiler.write_text("#!/bin/sh\ncase $* in *-shared*) echo 'cc1plus: fatal error: error "
                        "writing to /t/x.s: No space left on device' >&2; exit 1;; esac\n")
    compiler.chmod(0o700)
    env = replace(environment(), cache_dir=tmp_path / "cache", cxx=str(compiler))
    with pytest.raises(DiskFull, match=r"no room for answer.*\n.*/t/x\.s"):
        cpp_build.build_library(SOURCE, "answer", env)
    assert not list(tmp_path.rglob("*.so"))


def test_a_missing_compiler_is_an_error(tmp_path: Path) -> None:
    env = replace(environment(), cache_dir=tmp_path, cxx="no-such-compiler")
    with pytest.raises(NoCompiler, match="no-such-compiler"):
        cpp_build.build_library(SOURCE, "answer", env)


def test_no_flag_changes_numbers() -> None:
    flags = cpu_target(environment().cxx).flags
    assert "-ffp-contract=off" in flags and "-ffast-math" not in flags
