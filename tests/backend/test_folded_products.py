"""What comes behind a product of panels: its threads have not met, so whoever looks at what others
have folded waits for them first, and nobody else does. No GPU is needed."""

from __future__ import annotations

import re

import pytest

import eventtensor as et
from eventtensor.codegen.cuda import generate
from eventtensor.codegen.cuda.emitter import BlockDialect
from tests.backend.test_cuda_emulated import assert_close, launched, wanted_of
from tests.support.streams import plan_of


@et.task
def plain(x, w, v, out):
    out[:] = x @ w.T


@et.task
def by_an_element(x, w, v, out):
    """Every thread reads what one has folded."""
    y = x @ w.T
    out[:] = y * y[0, 3]


@et.task
def two(x, w, v, out):
    """Both are folded through the same memory."""
    y = x @ w.T
    z = x @ v.T
    out[:] = z * y[0, 0] + y[:, 3:4]


@et.task
def one_of_the_other(x, w, v, out):
    """What is folded is multiplied again, as 16 bits."""
    y = (x @ w.T).cast(et.bf16)
    out[:] = y @ v[:, 0:128].T


KINDS = {"plain": plain, "by_an_element": by_an_element, "two": two,
         "one_of_the_other": one_of_the_other}


def program(kind: str) -> et.Program:
    p = et.Program(kind)
    x, y = p.input("x", (1, 512), et.bf16), p.output("y", (2, 128), et.f32)
    w, v = (p.weight(name, (2, 128, 512), et.bf16) for name in "wv")
    p.call(KINDS[kind], name="go", grid=(2,), reads=lambda i: (x[:, :], w[i, :, :], v[i, :, :]),
           writes=lambda i: y[i : i + 1, :])
    return p


def behind_products(kind: str) -> list[str]:
    """The lines of the body from its first product on, without names of places."""
    text = generate(plan_of(program(kind), schedule="static")).text
    body = text[text.index("body_go(") : text.index("bool task_go(")]
    lines = [x.strip() for x in body[body.index("et::skinny_gemm<") :].splitlines()]
    return [x for x in lines if not re.match(r"//|const auto|(float|et::bf16)\* const", x)]


def test_a_loop_over_what_is_folded_is_behind_one_barrier() -> None:
    product, barrier, loop, *_ = behind_products("plain")
    assert product.startswith("et::skinny_gemm<")
    assert barrier == "et::sync();" and "for (int64_t" in loop


def test_a_lone_element_is_read_behind_the_barrier() -> None:
    product, barrier, element, *_ = behind_products("by_an_element")
    assert product.startswith("et::skinny_gemm<") and barrier == "et::sync();"
    assert re.match(r"const float v\d+ = v\d+_at\d+\[0\];", element)


def test_a_second_product_waits_for_the_fold_of_the_first() -> None:
    first, barrier, second, *rest = behind_products("two")
    assert first.startswith("et::skinny_gemm<") and second.startswith("et::skinny_gemm<")
    assert barrier == "et::sync();" and rest.count("et::sync();") == 2  # around the loop


def test_only_who_names_a_tile_that_is_folded_or_begins_a_block_waits_for_it() -> None:
    def behind(*lines: str, block: bool = False, ends: bool = False) -> list[str]:
        out = BlockDialect()
        out.ends_folding("fold(v4);", ["v4"])
        for text in lines:
            out.line(text)
        if block:
            with out.block("if (et::is_leader())"):
                out.line("v5[0] = v4[0];")
        if ends:
            out.ends_met("again(v6);")
        return out.text().split("\n")[1:-1]

    wait = "et::sync();"
    assert behind("a = v41[0] + v40;", "b = v5[0];") == ["a = v41[0] + v40;", "b = v5[0];"]
    assert behind("b = v5[0];", "a = v4[0];", "c = v4[1];") == [
        "b = v5[0];", wait, "a = v4[0];", "c = v4[1];"]
    assert behind(block=True) == [wait, "if (et::is_leader()) {", "  v5[0] = v4[0];", "}"]
    assert behind("b = v5[0];", ends=True) == ["b = v5[0];", wait, "again(v6);"]


@pytest.mark.parametrize("kind", KINDS)
def test_results_are_those_of_program_order(kind: str) -> None:
    for schedule in ("static", "ticket"):
        plan = plan_of(program(kind), schedule=schedule)
        (wanted,) = wanted_of(plan, [{}])
        for seed in range(4):
            (got,) = launched(plan, [{}], seed)
            assert_close(got, wanted, f"{schedule}, seed {seed}")
