"""Products of one column that follow one another: one loop for all of them, and its bits."""

from __future__ import annotations

from inspect import Parameter, Signature

import numpy as np
import pytest

import eventtensor as et
from eventtensor.codegen.cuda import generate
from eventtensor.compiler import run_passes
from eventtensor.config import Options
from eventtensor.ir.plan import Plan, StreamKind
from eventtensor.llm.model.decoder_tasks import Weights
from eventtensor.llm.model.packed_layout import plain_rows
from tests.support.emulated import emulated_kernel
from tests.support.streams import panels_shape

WEIGHTS = Weights("cuda", et.bf16)
MATRICES = 40
PANELS = 8  # of a matrix
# Products of a task, panels of each, columns of a row, panels of a bundle.
RUNS = {
    "a panel each, pages of one and a half strides": (3, 1, 768, 1),
    "a panel each, two share pages": (8, 1, 768, 1),
    "a panel each, four share pages": (8, 1, 384, 1),
    "a panel each of one short span, four share pages": (4, 1, 32, 1),
    "a panel each, pairs roll": (3, 1, 1024, 1),
    "two bundles each": (2, 2, 1024, 1),
    "bundles of two panels": (3, 4, 512, 2),
    "more than are folded at once, which ends inside of a product": (12, 3, 256, 1),
}


def several(times: int, weights: Weights):
    def several(x, *rest):
        *w, out = rest
        for a in range(times):
            out[a, :] = weights.product(x[a].reshape(1, weights.columns(w[a])), w[a])[0]

    names = ("x", *(f"w{a}" for a in range(times)), "out")
    several.__signature__ = Signature([Parameter(n, Parameter.POSITIONAL_ONLY) for n in names])
    return et.task(several)


@et.task
def copied(x, out):
    out[:] = x


def runs(name: str, near: bool = True, step: int = 3) -> et.Program:
    """A row of x for each matrix in a list; `near`: a task before has made it, with flags. Numbers
    of the list lie `step` apart where they are read."""
    times, panels, k, bundle = RUNS[name]
    tiles, some = PANELS // panels, panels // bundle
    p = et.Program("runs")
    x = p.input("x", (times, k), et.bf16)
    w = p.weight("w", (MATRICES, *panels_shape(PANELS, k, bundle)), et.bf16)
    which = p.input("which", (times * step,), et.i32, bound=MATRICES - 1)
    y = p.output("y", (times, tiles * panels * 16), et.f32)
    taken = x
    if near:
        taken = p.scratch("made", (times, k), et.bf16)
        p.call(copied, name="make", grid=(1,), reads=lambda i: x[:, :],
               writes=lambda i: taken[:, :])
    p.call(several(times, WEIGHTS), name="go", grid=(tiles,),
           reads=lambda i: (taken[:, :], *(
               w[which[a * step], i * some : i * some + some, :, :, :, :, :, :]
               for a in range(times))),
           writes=lambda i: y[:, i * panels * 16 : i * panels * 16 + panels * 16])
    return p


def plan_of(program: et.Program, stream: bool = True) -> Plan:
    plan = run_passes(program, Options(target="cuda", schedule="static", stream=stream)).plan
    assert plan is not None
    return plan


@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_right_and_has_the_bits_of_products_one_by_one(name: str) -> None:
    """From the ring, with x near or far, and in place, where each is by itself or shares pages."""
    times, panels, k, bundle = RUNS[name]
    rng = np.random.default_rng(len(name))
    x = rng.standard_normal((times, k)).astype(et.bf16.numpy)
    w = rng.standard_normal((MATRICES, *panels_shape(PANELS, k, bundle))).astype(et.bf16.numpy)
    which = rng.integers(0, MATRICES, 3 * times).astype(np.int32)
    rows = PANELS // panels * panels * 16
    plain = [plain_rows(w[which[3 * a]])[:rows].astype(np.float64) for a in range(times)]
    wanted = np.stack([m @ row for m, row in zip(plain, x.astype(np.float64), strict=True)])
    seen = set()
    for near, stream, seed in ((True, True, 0), (True, True, 1), (False, True, 0),
                               (True, False, 0)):
        y = np.full((times, rows), np.nan, np.float32)
        with emulated_kernel(plan_of(runs(name, near), stream), 2, seed) as kernel:
            kernel.launch({}, {"x": x, "w": w, "which": which, "y": y})
        assert np.abs(y - wanted).max() < k * 2.0**-15, f"{near=} {stream=} {seed=}"
        seen.add(y.tobytes())
    assert len(seen) == 1


def test_a_run_is_one_call_and_one_loop_of_the_loader() -> None:
    text = generate(plan_of(runs("two bundles each"))).text
    assert text.count("et::skinny_gemm<") == 1
    assert "et::skinny_gemm<et::bf16, 1, 2048, 1024, 4, 2>" in text
    assert "et::Matrix<et::bf16>{x_tile, 1, 1024}, 32 * 2, 2);" in text
    load = text[text.index("void load_go(") : text.index("bool feed_go(")]
    assert load.count("worker.run_on<") == 1 and "* 3" in load and "worker.follow();" in load


@pytest.mark.parametrize(("name", "joined", "chunk"), [
    ("a panel each, two share pages", 2, 512), ("a panel each, four share pages", 4, 256)])
def test_products_of_a_panel_share_pages_that_they_do_not_fill(
    name: str, joined: int, chunk: int
) -> None:
    times, _, k, _ = RUNS[name]
    text = generate(plan_of(runs(name))).text
    assert f"et::skinny_gemm<et::bf16, 1, {2 * k}, {chunk}, {times}, {times}>" in text
    assert f"et::PipelinePanels<256, {joined}, true>" in text
    load = text[text.index("void load_go(") : text.index("bool feed_go(")]
    assert f"< {times}; v" in load and f" += {joined})" in load
    assert load.count("args.w + ") == joined and f", {2 * k * 16}, {chunk * 16});" in load
    placed = generate(plan_of(runs(name), stream=False)).text
    assert f"et::GlobalJoinedPanels<256, {joined}, {times}>" in placed


@pytest.mark.parametrize("panels", (1, 2))
def test_a_tile_of_some_panels_of_a_bundle_has_no_pages(panels: int) -> None:
    """Its spans lie apart, but it is multiplied all the same."""
    bundle, k = 4, 384
    of = bundle // panels
    p = et.Program("some")
    x = p.input("x", (1, k), et.bf16)
    w = p.weight("w", panels_shape(PANELS, k, bundle), et.bf16)
    y = p.output("y", (1, PANELS * 16), et.f32)

    def tile(i):
        first = i % of * panels
        return w[i // of : i // of + 1, :, first : first + panels, :, :, :, :]

    p.call(
        several(1, WEIGHTS),
        name="go",
        grid=(PANELS // panels,),
        reads=lambda i: (x[:, :], tile(i)),
        writes=lambda i: y[:, i * panels * 16 : i * panels * 16 + panels * 16],
    )
    rng = np.random.default_rng(k)
    row = rng.standard_normal((1, k)).astype(et.bf16.numpy)
    weights = rng.standard_normal(panels_shape(PANELS, k, bundle)).astype(et.bf16.numpy)
    wanted = row.astype(np.float64) @ plain_rows(weights).astype(np.float64).T
    plan, got = plan_of(p), np.full((1, PANELS * 16), np.nan, np.float32)
    assert not any(s.kind is StreamKind.packed for s in plan.streams)
    with emulated_kernel(plan, 2, 0) as kernel:
        kernel.launch({}, {"x": row, "w": weights, "y": got})
    assert np.abs(got - wanted).max() < k * 2.0**-15


def listed(k: int, numbers: tuple[int, ...]) -> str:
    """The text of a kernel whose one task takes these of eight matrices."""
    p, times = et.Program("listed"), len(numbers)
    x = p.input("x", (times, k), et.bf16)
    w = p.weight("w", (8, *panels_shape(1, k)), et.bf16)
    y = p.output("y", (times, 16), et.f32)
    p.call(several(times, WEIGHTS), name="go", grid=(1,),
           reads=lambda i: (x[:, :], *(w[n, i : i + 1, :, :, :, :, :, :] for n in numbers)),
           writes=lambda i: y[:, :])
    return generate(plan_of(p)).text


def test_products_that_lie_in_no_even_order_are_loaded_one_by_one() -> None:
    """Two steps apart, and then one: one loop multiplies, but not one loads."""
    text = listed(512, (0, 2, 3))
    load = text[text.index("void load_go(") : text.index("bool feed_go(")]
    assert text.count("et::skinny_gemm<") == 1
    assert load.count("worker.run<") == 3 and "run_on" not in load


@et.task
def out_of_turn(x, v, w, out):
    out[0, :] = WEIGHTS.product(x[1].reshape(1, 512), v)[0]
    out[1, :] = WEIGHTS.product(x[0].reshape(1, 512), w)[0]


@et.task
def one_transposed(x, v, w, out):
    out[0, :] = WEIGHTS.product(x[0].reshape(1, 512), v)[0]
    out[1, :] = WEIGHTS.product(x[1].transpose(1, 0).reshape(1, 512), w)[0]


@et.task
def both_transposed(x, v, w, out):
    for a, one in enumerate((v, w)):
        out[a, :] = WEIGHTS.product(x[a].transpose(1, 0).reshape(1, 512), one)[0]


@et.task
def along_the_second(x, v, w, out):
    for a, one in enumerate((v, w)):
        out[a, :] = WEIGHTS.product(x[:, a].reshape(1, 512), one)[0]


# Kind of task, shape of x, what its rows are, and products that are calls of their own.
OTHERS = {
    "out of turn": (out_of_turn, (2, 16, 32), lambda x: x[::-1].reshape(2, 512), 2),
    "one transposed": (one_transposed, (2, 16, 32),
                       lambda x: np.stack([x[0].reshape(512), x[1].T.reshape(512)]), 2),
    "both transposed": (both_transposed, (2, 16, 32),
                        lambda x: x.transpose(0, 2, 1).reshape(2, 512), 2),
    "rows that lie apart": (along_the_second, (16, 2, 32),
                            lambda x: x.transpose(1, 0, 2).reshape(2, 512), 2),
    "elements that lie apart": (along_the_second, (512, 2), lambda x: x.T, 1),
}


@pytest.mark.parametrize("near", [True, False])
@pytest.mark.parametrize("name", OTHERS)
def test_other_slices_are_right_as_well(name: str, near: bool) -> None:
    kind, shape, rows_of, calls = OTHERS[name]
    whole = (slice(None),) * len(shape)
    p = et.Program("others")
    x = taken = p.input("x", shape, et.bf16)
    w = p.weight("w", (2, *panels_shape(1, 512)), et.bf16)
    y = p.output("y", (2, 16), et.f32)
    if near:
        taken = p.scratch("made", shape, et.bf16)
        p.call(copied, name="make", grid=(1,), reads=lambda i: x[whole],
               writes=lambda i: taken[whole])
    p.call(kind, name="go", grid=(1,),
           reads=lambda i: (taken[whole], *(w[n, i : i + 1, :, :, :, :, :, :] for n in (0, 1))),
           writes=lambda i: y[:, :])
    plan = plan_of(p)
    assert generate(plan).text.count("et::skinny_gemm<") == calls
    rng = np.random.default_rng(len(name))
    given = rng.standard_normal(shape).astype(et.bf16.numpy)
    weights = rng.standard_normal((2, *panels_shape(1, 512))).astype(et.bf16.numpy)
    got = np.full((2, 16), np.nan, np.float32)
    with emulated_kernel(plan, 2, 0) as kernel:
        kernel.launch({}, {"x": given, "w": weights, "y": got})
    rows = rows_of(given).astype(np.float64)
    wanted = [plain_rows(m).astype(np.float64) @ row for m, row in zip(weights, rows, strict=True)]
    assert np.abs(got - np.stack(wanted)).max() < 512 * 2.0**-15


def test_a_run_has_no_more_columns_than_are_staged_as_a_whole() -> None:
    text = listed(8192, tuple(range(8)))
    assert text.count("et::skinny_gemm<et::bf16, 1, 16384, 1024, 2, 2>") == 4
