"""The comparison of machine code: names and lines do not count, instructions do."""

from __future__ import annotations

import pytest

from eventtensor.config import environment
from eventtensor.runtime.cuda.cuda_build import build_cubin
from tools import compare_kernels
from tools.kernel_set import ARCHITECTURE, KERNELS

SOURCE = """extern "C" __global__ void kernel(float* x) {
  float sum = 0;
  for (int i = 0; i < 4; ++i) sum += x[i * blockDim.x + threadIdx.x];
  x[threadIdx.x] = sum;
}
"""


def built(folder, name, source):
    path = folder / f"{name}.cubin"
    path.write_bytes(build_cubin(source, "kernel", ARCHITECTURE, environment()).path.read_bytes())
    return path


@pytest.fixture
def base(tmp_path):
    return built(tmp_path, "base", SOURCE)


def test_other_names_and_lines_are_equal(tmp_path, base):
    renamed = "// A comment.\n\n" + SOURCE.replace("sum", "total").replace("int i", "int  i")
    assert built(tmp_path, "renamed", renamed).read_bytes()
    assert compare_kernels.verdict(base, tmp_path / "renamed.cubin") == (True, "equal")


def test_another_instruction_is_seen(tmp_path, base):
    other = built(tmp_path, "other", SOURCE.replace("sum += x", "sum -= x"))
    equal, text = compare_kernels.verdict(base, other)
    assert not equal and "DIFFERS" in text
    assert not compare_kernels.verdict(base, tmp_path / "none.cubin")[0]


def test_code_is_found_by_kernel(base):
    (name,) = compare_kernels.sections(base.read_bytes())
    assert name == ".text.kernel"
    with pytest.raises(ValueError, match="no cubin"):
        compare_kernels.sections(b"text")


def test_every_kernel_of_the_set_is_a_program():
    assert len(KERNELS) == 12 and KERNELS["mlp"]().build().name
