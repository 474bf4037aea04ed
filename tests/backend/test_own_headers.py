"""Custom bodies with a user's own headers, from any folder, for threads and in the emulated GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import eventtensor as et
from eventtensor.codegen.cuda.kernel import generate
from eventtensor.compiler import run_passes
from eventtensor.config import Options, environment
from eventtensor.ir.plan import Plan
from eventtensor.runtime import cpp_build
from eventtensor.runtime.cpu_kernel import CpuKernel
from eventtensor.runtime.cuda import cuda_build as cuda_build
from eventtensor.runtime.headers import own_headers
from tests.support.emulated import emulated_kernel

SCALE = """#pragma once
#include "view.h"
#include "parts/factor.h"

namespace mine {

template <class X, class Out> ET_FN void scale(const X& x, const Out& out, int64_t k) {
  out.data[k] = FACTOR * x.data[k];
}

}  // namespace mine
"""
CPP = "for (int64_t k = 0; k < x.extent[0]; ++k) mine::scale(x, out, k);"
CUDA = """
for (int64_t k = et::thread_rank(); k < x.extent[0]; k += et::num_threads()) mine::scale(x, out, k);
"""


def set_factor(folder: Path, factor: float) -> None:
    (folder / "parts/factor.h").write_text(f"#pragma once\nconstexpr float FACTOR = {factor}f;\n")


@pytest.fixture
def header(tmp_path: Path) -> Path:
    """It includes a header of device/, and another one of the user by its relative path."""
    (tmp_path / "parts").mkdir()
    (tmp_path / "scale.cuh").write_text(SCALE)
    set_factor(tmp_path, 3.0)
    return tmp_path / "scale.cuh"


def plan_of(header: Path, target: str, factor: float) -> Plan:
    @et.task(cpp=et.CppBody(CPP, headers=(header,)), cuda=et.CudaBody(CUDA, headers=(header,)))
    def scale(x, out):
        out[:] = x * factor

    p = et.Program("scaled")
    x, out = p.input("x", (100,), et.f32), p.output("out", (100,), et.f32)
    p.call(
        scale,
        grid=(4,),
        reads=lambda i: x[i * 25 : i * 25 + 25],
        writes=lambda i: out[i * 25 : i * 25 + 25],
    )
    plan = run_passes(p, Options(target=target)).plan
    assert plan is not None
    return plan


def arrays() -> dict[str, np.ndarray]:
    return {"x": np.arange(100, dtype=np.float32), "out": np.zeros(100, np.float32)}


def on_threads(header: Path, factor: float) -> np.ndarray:
    got, kernel = arrays(), CpuKernel(plan_of(header, "cpu", factor), Options(workers=2))
    kernel.launch({}, got)
    kernel.close()
    return got["out"]


def emulated(header: Path, factor: float) -> np.ndarray:
    got = arrays()
    with emulated_kernel(plan_of(header, "cuda", factor), 2) as kernel:
        kernel.launch({}, got)
    return got["out"]


@pytest.mark.parametrize("run", [on_threads, emulated])
def test_a_body_runs_what_its_headers_say_now(header: Path, run) -> None:
    np.testing.assert_array_equal(run(header, 3.0), 3.0 * arrays()["x"])
    set_factor(header.parent, 5.0)
    np.testing.assert_array_equal(run(header, 5.0), 5.0 * arrays()["x"])


def test_the_contents_of_all_of_them_are_a_part_of_the_key(header: Path, tmp_path: Path) -> None:
    env = replace(environment(), cache_dir=tmp_path / "cache")
    source = f'#include <cstdint>\n#include "numerics.h"\n#include "{header}"\n'
    assert own_headers(source) == [header.parent / "parts/factor.h", header]
    first = cpp_build.build_library(source, "scaled", env)
    assert first.fresh and not cpp_build.build_library(source, "scaled", env).fresh
    set_factor(header.parent, 5.0)
    again = cpp_build.build_library(source, "scaled", env)
    assert again.fresh and again.key != first.key


def test_headers_that_include_each_other_are_found_once(tmp_path: Path) -> None:
    (tmp_path / "one.h").write_text(f'#pragma once\n#include "../{tmp_path.name}/two.h"\n')
    (tmp_path / "two.h").write_text('#pragma once\n  #  include "one.h"\n#include "none.h"\n')
    found = own_headers(f'#include "{tmp_path}/one.h"\n#include "relative.h"\n')
    assert found == [tmp_path / "one.h", tmp_path / "two.h"]


def test_a_compiler_of_cuda_takes_them(header: Path, tmp_path: Path) -> None:
    env = replace(environment(), cache_dir=tmp_path / "cache")
    text = generate(plan_of(header, "cuda", 3.0)).text
    assert text.count(f'#include "{header}"') == 1
    first = cuda_build.build_cubin(text, "scaled", "sm_90a", env)
    set_factor(header.parent, 5.0)
    again = cuda_build.build_cubin(text, "scaled", "sm_90a", env)
    assert again.fresh and again.path.read_bytes() != first.path.read_bytes()
