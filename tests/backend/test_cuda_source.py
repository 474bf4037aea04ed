"""CUDA source of plans: kept text, what stands around shared loops, how ops are shared out, the
size of the arena. test_cuda_compile.py compiles it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

import eventtensor as et
from eventtensor.codegen.cpp.kernel import PLAIN
from eventtensor.codegen.cuda import generate
from eventtensor.codegen.cuda.kernel import BlockWriter
from eventtensor.errors import UnboundedTile
from eventtensor.ir.walk import evaluate
from eventtensor.kernel_ir.statements import Function
from eventtensor.kernel_ir.verify.conflicts import check_conflicts
from eventtensor.targets.devices import DEFAULT_DEVICE
from examples.blocks import blocks
from examples.cholesky import cholesky
from examples.mlp import mlp
from examples.moe import moe
from examples.moe_layers import moe_layers
from examples.row_sum import row_sum

GOLDEN = Path(__file__).parent.parent / "golden"
EXAMPLES = {f.__name__: f for f in (row_sum, mlp, moe, moe_layers, blocks, cholesky)}
SCHEDULES = ("static", "ticket", "push")


@pytest.mark.parametrize("name, schedule", [("row_sum", "static"), ("ragged", "push")])
def test_source_is_as_kept(lab, name: str, schedule: str) -> None:
    text = generate(lab.plan(lab.programs[name](), schedule)).text
    path = GOLDEN / f"{name}_{schedule}.cu"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", EXAMPLES)
def test_a_barrier_comes_after_a_shared_loop(lab, name: str, schedule: str) -> None:
    """Behind each loop of a body that is text. Bodies in kernel IR have barriers where accesses
    conflict, and one at their end."""
    plan = lab.plan(EXAMPLES[name](), schedule)
    writer = BlockWriter(plan, DEFAULT_DEVICE, PLAIN)
    writer.text()
    for record in writer.bodies.values():
        if isinstance(record.code, Function):
            check_conflicts(record.code)
            assert "  et::sync();" in record.lines[-4:]
            continue
        lines = record.lines
        heads = ("et::thread_rank();", "for (et::Each<")
        for k in (k for k, line in enumerate(lines) if any(h in line for h in heads)):
            depth = len(lines[k]) - len(lines[k].lstrip())
            end = lines.index(" " * depth + "}", k) if lines[k].endswith("{") else k
            assert lines[end + 1].strip() == "et::sync();", lines[k]


def test_no_element_loop_divides(lab) -> None:
    """Indices are decoded once for each thread, by et::Each, and stepped from there."""
    text = generate(lab.plan(lab.programs["ragged"](), "static")).text
    bodies = text[text.index("body_scale") : text.index("task_scale")]
    assert "for (et::Each<2> t1(e1, 8); t1.more(); t1.next())" in bodies
    assert "const int64_t i0 = t1[0], i1 = t1[1];" in bodies and " / " not in bodies


@et.task
def normed(x, w, out):
    scaled = x * et.rsqrt((x * x).sum(axis=1, keepdims=True))
    out[:] = scaled.cast(et.bf16) @ w


@et.task
def thin(x, out):
    out[:] = x.sum(axis=1) + x.max(axis=0).sum(axis=0)


def one_call(kind: et.Task, *reads: tuple[tuple[int, ...], et.DType], out: int | tuple[int, ...]):
    p = et.Program("one_call")
    tensors = [p.input(f"x{k}", shape, dtype) for k, (shape, dtype) in enumerate(reads)]
    shape = out if isinstance(out, tuple) else (out,)
    result = p.output("result", shape, et.f32)
    whole = lambda t, s: t[tuple(slice(0, n) for n in s)]
    p.call(kind, name="go", grid=(), writes=lambda: whole(result, shape),
           reads=lambda: tuple(whole(t, s) for t, (s, _) in zip(tensors, reads, strict=True)))
    return p


def test_half_a_warp_folds_an_element_and_a_cast_value_stays_in_16_bits(lab) -> None:
    program = one_call(normed, ((32, 96), et.f32), ((96, 64), et.bf16), out=(32, 64))
    made = generate(lab.plan(program))
    assert "et::half_sum<float>(96, " in made.text
    assert "if (t1.is_leader())" in made.text
    assert made.text.count("et::Matrix<et::bf16>{") == 2
    # What the warps fold through where they split K is part of the arena.
    assert evaluate(made.arena, {}) >= 16 * 256 * 4 + 32 * 96 * 2


def test_few_and_far_elements_are_folded_by_one_thread(lab) -> None:
    """A short axis, or one across which neighbours lie side by side; a result of no axes is known
    to all threads."""
    text = generate(lab.plan(one_call(thin, ((512, 4), et.f32), out=512))).text
    assert "et::lane_sum<float>(4, " in text
    text = generate(lab.plan(one_call(thin, ((64, 64), et.f32), out=64))).text
    assert "et::half_sum<float>(64, " in text and "et::fold_max<float>(64, " in text
    assert "const float v" in text and "= et::from_first(et::half_sum<float>(64, " in text


@et.task
def scaled(x, out):
    out[:] = x * et.rsqrt((x * x).sum(axis=1) / 64.0 + 0.5)[:, None]


def test_one_element_is_a_constant_of_every_thread_whatever_its_axes(lab) -> None:
    """So nobody meets between the fold and what takes its result."""
    text = generate(lab.plan(one_call(scaled, ((1, 64), et.f32), out=(1, 64)))).text
    body = text[text.index(" body_go(") :]
    folded, *behind = body[body.index("= et::from_first(") :].split("\n")
    assert folded.endswith(";") and "const float v" in behind[0] and "et::rsqrt(" in behind[0]
    assert "for (" in behind[1]


def _ends_at_a_barrier(lines: list[str], call: str) -> bool:
    """True for the call of a body whose last deed is a barrier."""
    name = call[call.index("body_") : call.index("(worker")]
    start = next(k for k, line in enumerate(lines) if f" {name}(et::Worker&" in line)
    end = lines.index("}", start)
    return "et::sync();" in [line.strip() for line in lines[end - 2 : end]]


@pytest.mark.parametrize("name", EXAMPLES)
def test_only_one_thread_of_a_block_notifies(lab, name: str) -> None:
    """A notify lies inside `if (et::is_leader())`, after a barrier of the whole task."""
    lines = generate(lab.plan(EXAMPLES[name](), "push")).text.split("\n")
    for k, line in enumerate(lines):
        if "et::ev_notify(" in line:
            head = max(j for j in range(k) if "if (et::is_leader())" in lines[j])
            before = lines[head - 1].strip()
            assert before == "et::sync();" or _ends_at_a_barrier(lines, before)
            assert not any(text == "  }" for text in lines[head:k])


def test_the_arena_holds_the_temporaries_of_the_largest_task(lab) -> None:
    made = generate(lab.plan(lab.programs["carried"]()))
    w, tile = 16 * 16 * 4, 8 * 16 * 4  # x @ w of a full tile; a smaller n has smaller tiles
    assert evaluate(made.arena, {"n": 100, "layers": 2}) == w + tile
    assert evaluate(made.arena, {"n": 3, "layers": 2}) == w + 3 * 16 * 4


@et.task
def product(x, w, out):
    out[:] = x @ w


def test_a_tile_of_unknown_size_is_refused(lab) -> None:
    p = et.Program("parts")
    ends = p.input("ends", (5,), et.i32, monotone=True, bound=(0, 100))
    x, w = p.input("x", (100, 8), et.f32), p.weight("w", (8, 8), et.f32)
    y = p.state("y", (100, 8), et.f32)
    p.call(product, grid=(4,), reads=lambda i: (x[ends[i] : ends[i + 1], :], w[:, :]),
           writes=lambda i: y[ends[i] : ends[i + 1], :])
    plan = lab.plan(p)
    generate(plan)
    free = tuple(replace(t, bound=None) for t in plan.program.tensors)
    with pytest.raises(UnboundedTile, match="elements"):
        generate(replace(plan, program=replace(plan.program, tensors=free)))


HAND = """
for (int64_t k = et::thread_rank(); k < out.extent[0]; k += et::num_threads())
  out.data[k] = x.data[k * x.stride[0]] * 3.0f;
"""


@et.task(cuda=HAND)
def triple(x, out):
    out[:] = x * 3.0


@et.task(cuda="this is not CUDA;")
def broken(x, out):
    out[:] = x * 3.0


def tripled(kind: et.Task) -> et.Program:
    p = et.Program("tripled")
    x, out = p.input("x", (64,), et.f32), p.output("out", (64,), et.f32)
    p.call(kind, name="go", grid=(), reads=lambda: x[:], writes=lambda: out[:])
    return p


def test_a_hand_tuned_body_stands_between_barriers(lab) -> None:
    text = generate(lab.plan(tripled(triple))).text
    assert "et::sync();\n  hand_go(worker, " in text
    assert "k += et::num_threads()" in text
