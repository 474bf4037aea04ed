"""Bodies that wait inside a loop, as text and on real threads."""

from __future__ import annotations

from shutil import which

import numpy as np
import pytest

import eventtensor as et
from eventtensor.codegen.cpp import generate
from eventtensor.codegen.cuda import generate as generate_cuda
from eventtensor.config import environment
from eventtensor.runtime.cuda import cuda_build
from tests.support.backends import copies, cpu_kernel, make_arrays, passes, run_direct
from tests.support.bases import chunk_layers, chunks

T = 4
MAKERS = {
    "equal": chunks, "half": lambda: chunks(T, T // 2), "double": lambda: chunks(T, 2 * T),
    "layers": chunk_layers,
}


def lines_of(text: str, start: str, stop: str) -> list[str]:
    found = [line.strip() for line in text.split("\n")]
    first = next(k for k, line in enumerate(found) if start in line)
    last = next(k for k in range(first, len(found)) if found[k].startswith(stop))
    return found[first : last + 1]


def test_a_wait_stands_first_in_its_loop_and_may_leave_the_body():
    text = generate(passes(chunks()).plan)
    body = lines_of(text, "bool body_walk(", "return true;")
    loop = next(k for k, line in enumerate(body) if "for (int64_t v" in line)
    var = body[loop].split("int64_t ")[1].split()[0]
    assert body[loop + 1].startswith(f"// wait part_done[%{var[1:]}]")
    assert body[loop + 2] == (
        f"if (!et::ev_wait(worker, args.cell.part_done, {var}, 1)) return false;")
    task = lines_of(text, "bool task_walk(", "return true;")
    assert "if (!body_walk(worker, args, i)) return false;" in task
    assert not any("part_done" in line for line in task)
    assert "void body_part(" in text


def test_the_cuda_kernel_waits_in_the_same_place():
    text = generate_cuda(passes(chunks()).plan).text
    body = lines_of(text, "bool body_walk(", "return true;")
    wait = next(k for k, line in enumerate(body) if "ev_wait" in line and "part_done" in line)
    assert "for (int64_t v" in body[wait - 2]


if which("nvcc"):

    @pytest.mark.parametrize("name", ["half", "layers"])
    def test_a_body_that_waits_compiles_for_cuda(name: str) -> None:
        source = generate_cuda(passes(MAKERS[name]()).plan).text
        built = cuda_build.build_cubin(source, name, "sm_90a", environment())
        assert built.path.read_bytes()[:4] == b"\x7fELF"


@pytest.mark.parametrize("schedule", ["static", "ticket", "push"])
@pytest.mark.parametrize("name", MAKERS)
def test_threads_compute_what_program_order_does(name: str, schedule: str) -> None:
    state = passes(MAKERS[name](), schedule)
    for workers in (1, 3):
        with cpu_kernel(state.plan, workers) as kernel:
            for n in (1, 4, 9, 31):
                dims = {d.name: n if d.name == "n" else 3 for d in state.program.dims}
                arrays = make_arrays(state.program, dims)
                want, got = run_direct(state.program, dims, arrays), copies(arrays)
                kernel.launch(dims, got)
                for tensor, array in want.items():
                    np.testing.assert_array_equal(got[tensor], array)


# ---- overlap -------------------------------------------------------------------------------

# Tile 1 does not end before the consumer has stored what it made of chunk 0 (or after long).
HOLD = """
const volatile float* const stored = reinterpret_cast<const float*>(where.data[0]);
for (int64_t k = 0; i == 1 && *stored == 0.0f && k < 10000000; ++k) std::this_thread::yield();
x.data[0] = a.data[0] + (i == 1 ? *stored : 0.0f);
"""


@et.task(cpp=HOLD)
def held(a, where, x):
    x[:] = a


@et.task
def take(x, y):
    for v in et.range(2):
        y[v] = x[v : v + 1].sum()


def test_a_consumer_stores_its_first_chunk_while_the_last_producer_still_runs():
    """The second producer adds what it saw of the result of chunk 0, which waits for the first."""
    p = et.Program("overlap")
    a, where = p.input("a", (2,), et.f32), p.input("where", (1,), et.i64)
    x, y = p.scratch("x", (2,), et.f32), p.output("y", (2,), et.f32)
    p.call(held, grid=(2,), reads=lambda i: (a[i : i + 1], where[:]),
           writes=lambda i: x[i : i + 1])
    p.call(take, grid=(1,), reads=lambda i: x[:], writes=lambda i: y[:])
    out = np.zeros(2, np.float32)
    address = np.asarray([out.ctypes.data], np.int64)
    with cpu_kernel(passes(p, "ticket").plan, 2) as kernel:
        kernel.launch({}, {"a": np.asarray([3, 5], np.float32), "where": address, "y": out})
    assert out.tolist() == [3, 8]
