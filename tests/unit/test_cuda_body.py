"""A custom CUDA body declares what the compiler decides by, and its source may not differ."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import eventtensor as et
from eventtensor.codegen.cuda import generate
from eventtensor.compiler import run_passes
from eventtensor.config import Options
from eventtensor.errors import BadCall, BadCudaBody, BadText, NoRoom
from eventtensor.ir.plan import StreamKind
from eventtensor.ir.program import Program as BuiltProgram

SOURCE = """
if (!arrive()) return false;
const int64_t next = et::next_tile(worker);
et::take<streamed>(worker, et::persistent_smem(worker), room, x, w, next, out);
return true;
"""
FULL = et.CudaBody(
    SOURCE, waits_inside=("x",), prefetches_next_tile=True, persistent_bytes_per_warp=8 * 1024,
    scratch=(et.Scratch("room", et.f32, "2*x_0 + 8"),),
    producer=et.Producer("et::bring(worker, w);", operands=("w",)))
PLAIN = et.CudaBody("out.data[0] = x.data[0] + w.data[0];")


def program_of(body: et.CudaBody | str, **options: str) -> BuiltProgram:
    @et.task(cuda=body, **options)
    def take(x, w, out):
        out[:] = x + w

    p = et.Program("custom")
    x, out = p.input("x", (4, 64), et.f32), p.output("out", (4, 64), et.f32)
    w = p.weight("w", (4, 64), et.f32)
    p.call(take, grid=(4,), reads=lambda i: (x[i, :], w[i, :]), writes=lambda i: out[i, :])
    return p.build()


def body_of(program: BuiltProgram) -> et.CudaBody:
    body = program.call("take").cuda_body
    assert body is not None
    return body


def test_program_text_prints_and_parses_all_that_a_body_declares() -> None:
    program = program_of(FULL)
    text = str(program)
    for line in ("cuda body", "waits_inside x", "prefetches_next_tile",
                 "persistent_bytes_per_warp 8192", "scratch room : f32[2*x_0 + 8]", "producer w"):
        assert f"{line}\n" in text
    again = et.parse(text)
    assert again == program and str(again) == text and body_of(again) == FULL


@pytest.mark.parametrize(
    "fewer",
    [
        {"waits_inside": (), "source": SOURCE.replace("arrive()", "true")},
        {"prefetches_next_tile": False, "source": SOURCE.replace("et::next_tile(worker)", "-1")},
        {
            "persistent_bytes_per_warp": 0,
            "source": SOURCE.replace("et::persistent_smem(worker)", "0"),
        },
        {"producer": None},
    ],
    ids=["waits", "next tile", "persistent", "producer"],
)
def test_each_attribute_changes_the_text(fewer: dict[str, object]) -> None:
    body = replace(FULL, **fewer)
    program = program_of(body)
    assert body_of(et.parse(str(program))) == body != FULL


def test_program_text_has_the_paths_of_headers(tmp_path: Path) -> None:
    header = tmp_path / "a header.cuh"
    header.touch()
    program = program_of(replace(FULL, headers=(header,)), cpp=et.CppBody("x;", headers=(header,)))
    text = str(program)
    assert text.count(f"header {header}\n") == 2
    assert et.parse(text) == program and body_of(program).headers == (str(header),)
    header.unlink()
    with pytest.raises(BadText, match="there is no header"):
        et.parse(text)


# ---- refusals ------------------------------------------------------------------------------

DIFFERENCES = {
    "arrive is not declared": (replace(FULL, waits_inside=()), "calls arrive and does not declare"),
    "arrive is not called": (
        replace(PLAIN, waits_inside=("x",)), "declares waits_inside and does not call arrive"),
    "a wait for what is not read": (
        replace(FULL, waits_inside=("out",)), "waits_inside with 'out', which the task does not"),
    "the next tile is not declared": (
        replace(FULL, prefetches_next_tile=False), "does not declare prefetches_next_tile"),
    "the next tile is not asked for": (
        replace(PLAIN, prefetches_next_tile=True), "declares prefetches_next_tile and does not"),
    "persistent memory is not declared": (
        replace(FULL, persistent_bytes_per_warp=0), "does not declare persistent_bytes_per_warp"),
    "persistent memory is not used": (
        replace(PLAIN, persistent_bytes_per_warp=64), "declares persistent_bytes_per_warp and"),
    "scratch is not declared": (
        replace(PLAIN, source="float* p = worker.arena.take<float>(8);"), "declare the scratch"),
    "scratch is not used": (
        replace(PLAIN, scratch=FULL.scratch), "declares scratch 'room' and does not name it"),
    "a producer names more": (
        replace(FULL, producer=et.Producer("et::bring(worker, w, x);", operands=("w",))),
        "has a producer that names 'x', against its operands"),
    "a producer names less": (
        replace(FULL, producer=et.Producer("et::bring(worker, w);", operands=("w", "x"))),
        "has a producer that does not name 'x', against its operands"),
    "a producer of what is not read": (
        replace(FULL, producer=et.Producer("et::bring(worker, w);", operands=("w", "out"))),
        "declares a producer with 'out', which the task does not read"),
    "pages that nobody takes": (
        replace(FULL, source=SOURCE.replace("streamed", "true")),
        "has a producer and does not ask whether it is streamed"),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_a_source_that_differs_from_its_declaration_is_refused(name: str) -> None:
    body, cause = DIFFERENCES[name]
    with pytest.raises(BadCudaBody) as caught:
        program_of(body)
    error = caught.value
    assert error.code == "ET107" and cause in error.message and "call 'take'" in error.message
    assert error.place.startswith("test_cuda_body.py:") and error.hint


@pytest.mark.parametrize(
    ("headers", "cause"),
    [
        (("/no/such/file.cuh",), "there is no header '/no/such/file.cuh'"),
        (("/",), "there is no header '/'"),
        ("file.cuh", "'file.cuh' is no sequence of files"),
        ((3,), "has 3, which is no path"),
    ],
)
def test_headers_are_files(headers: object, cause: str) -> None:
    with pytest.raises(BadCudaBody, match=cause):
        et.CudaBody("x;", headers=headers)
    with pytest.raises(BadCall, match=cause):
        et.CppBody("x;", headers=headers)


def test_a_header_that_no_line_can_include_is_refused(tmp_path: Path) -> None:
    header = tmp_path / 'a".cuh'
    header.touch()
    with pytest.raises(BadCudaBody, match="no line of C"):
        et.CudaBody("x;", headers=(header,))


def test_program_text_whose_source_differs_is_refused() -> None:
    text = str(program_of(FULL)).replace("    prefetches_next_tile\n", "")
    with pytest.raises(BadCudaBody, match="does not declare prefetches_next_tile") as caught:
        et.parse(text)
    assert caught.value.place.startswith("<text>:")


@pytest.mark.parametrize("line", [
    "waits_inside 3", "scratch room f32", "scratch room : f32[n/2]", "scratch room : f99[2]",
    "persistent_bytes_per_warp many", "prefetches_next_tile often", "colour red",
])
def test_text_that_declares_nothing_of_a_body_is_refused(line: str) -> None:
    text = str(program_of(PLAIN)).replace("    source\n", f"    {line}\n    source\n")
    with pytest.raises(BadText):
        et.parse(text)


@pytest.mark.parametrize("make", [
    lambda: et.CudaBody(" "), lambda: et.CudaBody(3), lambda: et.CudaBody("x;", waits_inside="x"),
    lambda: et.CudaBody("x;", scratch=("room",)), lambda: et.CudaBody("x;", producer="x;"),
    lambda: et.CudaBody("x;", persistent_bytes_per_warp=-1), lambda: et.Producer("", ("x",)),
    lambda: et.Producer("x;", "x"), lambda: et.Scratch("a b", et.f32, 8),
    lambda: et.Scratch("room", "f32", 8), lambda: et.Scratch("room", et.f32, "f(8)"),
])
def test_values_that_no_body_can_have_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(BadCudaBody):
        make()


@pytest.mark.parametrize(
    "text",
    [
        "// arrive() and et::next_tile(worker)\n",
        "/* et::persistent_smem(worker)\n arrive */\n",
        'const char* what = "arrive et::next_tile(worker)";\n',
        "other.arrive();\n",
        "mine::arrive();\n",
        "my_arrive();\n",
    ],
)
def test_what_a_source_does_not_call_needs_no_declaration(text: str) -> None:
    assert body_of(program_of(replace(PLAIN, source=text + PLAIN.source))).waits_inside == ()


def test_more_persistent_memory_than_a_warp_has_is_refused() -> None:
    body = replace(FULL, persistent_bytes_per_warp=8 * 1024 + 1)
    plan = run_passes(program_of(body), Options(target="cuda")).plan
    assert plan is not None
    with pytest.raises(NoRoom, match="8193 bytes for each"):
        generate(plan)


# ---- older ways ----------------------------------------------------------------------------


def test_a_bare_source_declares_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert body_of(program_of(PLAIN.source)) == PLAIN


OLD = """
float* const room = worker.arena.take<float>(2*x_0 + 8);
et::take<streamed>(worker, et::persistent_smem(worker), room, x, w, out);
"""


def test_an_older_source_works_and_names_its_declaration() -> None:
    with pytest.warns(DeprecationWarning, match="et.CudaBody") as caught:
        program = program_of(OLD, loader="et::bring(worker, w);")
    assert body_of(program) == et.CudaBody(
        "\net::take<streamed>(worker, et::persistent_smem(worker), room, x, w, out);\n",
        persistent_bytes_per_warp=8 * 1024,
        scratch=FULL.scratch,
        producer=FULL.producer,
    )
    told = str(caught[0].message)
    for part in ("et.Scratch('room', et.f32, '2*x_0 + 8')", "persistent_bytes_per_warp=8192",
                 "producer=et.Producer(source, ('w',))"):
        assert part in told
    assert caught[0].filename == __file__
    plan = run_passes(program, Options(target="cuda")).plan
    assert plan is not None and [s.kind for s in plan.streams] == [StreamKind.hand]


def test_a_loader_goes_with_a_source_alone() -> None:
    with pytest.raises(BadCall, match="loader="):
        et.task(cuda=FULL, loader="et::bring(worker, w);")
