"""Compiles generated CUDA to a cubin: NVRTC, or nvcc where there is none. The result, and what the
compiler says of it, go into the content-addressed cache of runtime/cpp_build.py. No GPU is needed.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from shutil import which
from typing import Any

from ...config import Environment
from ...errors import CompileFailed, NoCompiler, NoDevice
from ..cpp_build import DEVICE, BuildResult, device_digest
from ..headers import own_digest
from ..store import open_folder, record_digest, recorded_facts, write_atomically
from .driver import bindings

# No contraction and no fast-math: the same bits as the C++ back end for IEEE operations.
FLAGS = ("-std=c++17", "-fmad=false", f"-I{DEVICE}")
_NVCC = ("--expt-relaxed-constexpr", "-cubin", "-diag-suppress=177,550,186", "-Xptxas", "-v")
_NVRTC = ("--ptxas-options=-v",)

_STACK_BYTES = 256 << 20
_STARTING = threading.Lock()  # the size of stacks is one for the process


@dataclass(frozen=True, slots=True)
class Usage:
    """What a kernel needs of a multiprocessor: registers a thread, bytes that went from registers
    to memory, bytes of stack a thread, bytes of static shared memory."""

    registers: int
    spill_bytes: int
    stack_bytes: int
    shared_bytes: int

    @staticmethod
    def read(log: str) -> Usage:
        """From the report of ptxas -v: one entry function and those that it calls."""
        def found(pattern: str) -> list[int]:
            return [int(x) for x in re.findall(pattern, log)]

        return Usage(
            max(found(r"Used (\d+) registers"), default=0),
            sum(found(r"(\d+) bytes spill stores")),
            max(found(r"(\d+) bytes (?:cumulative stack size|stack frame)"), default=0),
            max(found(r"(\d+) bytes smem"), default=0),
        )


@dataclass(frozen=True, slots=True)
class Cubin(BuildResult):
    """A cubin, and what the compiler says of it."""

    usage: Usage


def build_cubin(source: str, name: str, architecture: str, env: Environment) -> Cubin:
    """The cubin of a source; compiled only if the cache has none."""
    compiler = _Nvrtc.found() or _Nvcc.found()
    if compiler is None:
        raise NoCompiler(
            "there is neither NVRTC (cuda-bindings) nor nvcc",
            hint="pip install 'eventtensor[cuda]', or put nvcc on PATH",
        )
    headers = device_digest("*.h", "cuda/**/*.cuh")
    parts = (source, headers, own_digest(source), compiler.version, architecture, " ".join(FLAGS))
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    folder = open_folder(env.cache_dir, key[:2], key)
    done = folder / f"{name}.cubin"
    known = _usage(recorded_facts(done))
    if known is not None:
        return Cubin(done, key, False, known)
    text = folder / f"{name}.cu"
    write_atomically(text, source.encode())
    cubin, log = compiler.compile(text, architecture)
    usage = Usage.read(log)
    write_atomically(done, cubin)
    record_digest(done, usage=asdict(usage))
    return Cubin(done, key, True, usage)


def _usage(facts: dict[str, Any] | None) -> Usage | None:
    try:
        return None if facts is None else Usage(**facts["usage"])
    except (KeyError, TypeError):
        return None


class _Nvrtc:
    def __init__(self, version: str) -> None:
        self.version = version

    @staticmethod
    def found() -> _Nvrtc | None:
        try:
            status, major, minor = bindings("nvrtc").nvrtcVersion()
        except (NoDevice, RuntimeError):
            return None
        return _Nvrtc(f"nvrtc {major}.{minor}") if int(status) == 0 else None

    def compile(self, path: Path, architecture: str) -> tuple[bytes, str]:
        """The cubin and the compiler's log. NVRTC recurses deeply in long functions: it gets a
        thread with a large stack."""
        with ThreadPoolExecutor(1) as deep:
            with _STARTING:
                before = threading.stack_size(_STACK_BYTES)
                try:
                    found = deep.submit(self._compile, path, architecture)
                finally:
                    threading.stack_size(before)
            return found.result()

    def _compile(self, path: Path, architecture: str) -> tuple[bytes, str]:
        nvrtc = bindings("nvrtc")
        source = path.read_bytes()
        _, program = nvrtc.nvrtcCreateProgram(source, path.name.encode(), 0, [], [])
        options = [f.encode() for f in (*FLAGS, *_NVRTC, f"-arch={architecture}")]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        log = self._log(nvrtc, program)
        if int(status) != 0:
            raise _refuses("NVRTC", path, log)
        _, size = nvrtc.nvrtcGetCUBINSize(program)
        cubin = bytes(size)  # the bindings write into it
        nvrtc.nvrtcGetCUBIN(program, cubin)
        nvrtc.nvrtcDestroyProgram(program)
        return cubin, log

    @staticmethod
    def _log(nvrtc: Any, program: Any) -> str:
        _, size = nvrtc.nvrtcGetProgramLogSize(program)
        log = bytes(size)
        nvrtc.nvrtcGetProgramLog(program, log)
        return log.decode(errors="replace")


class _Nvcc:
    def __init__(self, path: str, version: str) -> None:
        self.path, self.version = path, version

    @staticmethod
    def found() -> _Nvcc | None:
        path = which("nvcc")
        if path is None:
            return None
        shown = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
        return _Nvcc(path, shown.stdout) if shown.returncode == 0 else None

    def compile(self, path: Path, architecture: str) -> tuple[bytes, str]:
        """The cubin and the compiler's log."""
        virtual = architecture.replace("sm_", "compute_")
        handle, out = tempfile.mkstemp(suffix=".cubin")
        os.close(handle)
        command = [
            self.path, *FLAGS, *_NVCC, f"-gencode=arch={virtual},code={architecture}",
            "-o", out, str(path),
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise _refuses("nvcc", path, done.stderr)
            return Path(out).read_bytes(), done.stderr
        finally:
            Path(out).unlink(missing_ok=True)


def _refuses(compiler: str, path: Path, log: str) -> CompileFailed:
    shown = "\n".join(log.splitlines()[:20])
    return CompileFailed(
        f"{compiler} refuses {path}:\n{shown}",
        hint="if the call has a cuda= body, look there first",
    )
