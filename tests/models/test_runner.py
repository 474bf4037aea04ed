"""Steps of a runner: bad tokens are errors before a launch, and a result depends neither on the
place in the batch nor on the pages. Copies to and from a GPU run on a driver in Python."""

from __future__ import annotations

import numpy as np
import pytest

from eventtensor.errors import (
    BadOption,
    BoundViolated,
    DeviceFailed,
    DimOutOfRange,
    FactViolated,
)
from eventtensor.llm.runner import runner as runner_module
from eventtensor.llm.runner import runner_memory as memory_module
from eventtensor.llm.runner.batch_arrays import BatchArrays, RunnerLimits
from eventtensor.llm.runner.runner import Runner, StepToken, TokenChoice
from eventtensor.llm.runner.runner_memory import DeviceMemory, HostMemory, Shared
from eventtensor.llm.runner.step_inputs import DeviceBlockTables
from eventtensor.llm.weights.model_source import open_model
from eventtensor.llm.weights.weight_packing import pack_weights
from tests.models.fake_kernels import fake_kernels
from tests.support.fake_driver import FakeDriver, installed

MODEL = open_model("random:tiny-llama")
SIZES = {"pages": 8, "positions": 512, "requests": 3}
IDS = [7, 250, 3, 99, 0, 255, 31, 8]


@pytest.fixture(scope="module")
def runner():
    weights = pack_weights(MODEL.checkpoint, "cpu", np.dtype(np.float32))
    made = Runner(MODEL.config, weights, target="cpu", dtype="f32", **SIZES)
    yield made
    made.close()


def prompt(request, count, last_first=True):
    rows = [StepToken(request, IDS[k], k) for k in range(count)]
    return [rows[-1], *rows[:-1]] if last_first else rows


# ---- what is refused -------------------------------------------------------------------------

ONE = [StepToken(0, 5, 0)]
BAD = [
    ("token 256", BoundViolated, [StepToken(0, 256, 0)], [[0]], 1, ()),
    ("row 64; tokens of the step before:", BoundViolated, [StepToken(0, ~64, 0)], [[0]], 1, ()),
    ("request 1", BoundViolated, [StepToken(1, 5, 0)], [[0]], 1, ()),
    ("position 128; its pages hold", BoundViolated, [StepToken(0, 5, 128)], [[0]], 1, ()),
    ("position 512; the runner takes 512", BoundViolated, [StepToken(0, 5, 512)],
     [[0, 1, 2, 3]], 1, ()),
    ("position -1", BoundViolated, [StepToken(0, 5, -1)], [[0]], 1, ()),
    ("pages 0 to 8", BoundViolated, ONE, [[0, 8]], 1, ()),
    ("request 0 has 5 pages", DimOutOfRange, ONE, [[0, 1, 2, 3, 4]], 1, ()),
    ("4 page tables", DimOutOfRange, ONE, [[0], [1], [2], [3]], 1, ()),
    ("129 rows", DimOutOfRange, [StepToken(0, 5, k) for k in range(129)], [[0, 1]], 1, ()),
    ("0 rows", DimOutOfRange, [], [[0]], 1, ()),
    ("2 of 1 rows", DimOutOfRange, ONE, [[0]], 2, ()),
    ("0 of 1 rows", DimOutOfRange, ONE, [[0]], 0, ()),
    ("two rows write", FactViolated, [StepToken(0, 5, 3), StepToken(0, 6, 3)], [[0]], 1, ()),
    ("name 2 times", FactViolated, ONE, [[3], [3]], 1, ()),
    ("2 choices for 1", DimOutOfRange, ONE, [[0]], 1, (TokenChoice(), TokenChoice())),
    ("top_p=0", BoundViolated, ONE, [[0]], 1, (TokenChoice(top_p=0.0),)),
    ("temperature=nan", BoundViolated, ONE, [[0]], 1, (TokenChoice(temperature=float("nan")),)),
]


@pytest.mark.parametrize(("shown", "kind", "rows", "tables", "chosen", "choices"), BAD,
                         ids=[b[0] for b in BAD])
def test_what_cannot_run_is_refused_and_changes_nothing(
    runner, shown, kind, rows, tables, chosen, choices
):
    before = runner.fixed["kv"].copy()
    with pytest.raises(kind) as caught:
        runner.step(rows, tables, chosen, choices)
    assert shown in str(caught.value) and caught.value.hint
    np.testing.assert_array_equal(runner.fixed["kv"], before)


def test_a_page_may_be_shared_by_those_who_only_read_it(runner):
    """Two requests with the same first page, of which neither writes to it any more."""
    width = runner.page
    for start in range(0, width, 16):
        rows = [StepToken(0, IDS[k % 8], k) for k in range(start, start + 16)]
        runner.step(rows, [[5]], 1, logits=0)
    alone = runner.step([StepToken(0, 9, width)], [[5, 0]]).logits
    both = runner.step([StepToken(0, 9, width), StepToken(1, 9, width)], [[5, 0], [5, 1]], 2).logits
    np.testing.assert_array_equal(both, np.repeat(alone, 2, axis=0))


def test_an_unknown_dtype_is_refused():
    with pytest.raises(BadOption, match="f64"):
        Runner(MODEL.config, {}, target="cpu", dtype="f64", **SIZES)


def test_tokens_are_drawn_only_by_a_runner_made_for_it(runner):
    with pytest.raises(BadOption, match="likeliest token only") as caught:
        runner.step(ONE, [[0]], 1, [TokenChoice(temperature=1.0)])
    assert "sampling=True" in caught.value.hint


# ---- what a step gives -----------------------------------------------------------------------


def test_a_prompt_in_chunks_gives_the_bits_of_a_prompt_at_once(runner):
    whole = runner.step(prompt(0, 8), [[0]])
    for k in range(8):
        single = runner.step([StepToken(0, IDS[k], k)], [[6]])
    np.testing.assert_array_equal(whole.logits, single.logits)
    assert whole.tokens.tolist() == [int(whole.logits[0].argmax())]


def test_a_row_does_not_see_the_others_nor_where_its_pages_are(runner):
    alone = runner.step(prompt(0, 6), [[2]])
    first, second = prompt(1, 6), [StepToken(2, 44, 0)]
    mixed = runner.step([first[0], second[0], *first[1:]], [[0], [7, 1], [4]], 2)
    np.testing.assert_array_equal(mixed.logits[:1], alone.logits)
    assert mixed.tokens[0] == alone.tokens[0]


def test_logits_come_only_if_wanted_and_are_the_callers_own(runner):
    kept = runner.step(ONE, [[0]])
    before = kept.logits.copy()
    other = runner.step([StepToken(0, 6, 0)], [[0]], logits=0)
    assert other.logits.shape == (0, MODEL.config.vocab)
    np.testing.assert_array_equal(kept.logits, before)


def test_a_launch_is_bound_once_for_each_number_of_rows(runner):
    runner._bound.clear()
    for k in range(8):
        runner.step([StepToken(0, IDS[k], k)], [[k % 3]])
    assert list(runner._bound) == [(0, 1, 0, 1, 0, 0, 0, 1, 1, False, True)]
    runner.step(prompt(0, 5), [[0]])
    assert list(runner._bound) == [
        (0, 1, 0, 1, 0, 0, 0, 1, 1, False, True),
        (0, 1, 4, 8, 0, 0, 0, 1, 1, False, False)]


def test_of_many_bindings_the_last_used_are_kept(runner, monkeypatch):
    monkeypatch.setattr(runner.memory, "max_bound_launches", 3)
    runner._bound.clear()
    for count in (1, 2, 3, 1, 4, 5, 1):
        runner.step(prompt(0, count), [[0]])
    assert [key[2] for key in runner._bound] == [3, 4, 0]


def test_a_step_reads_every_matrix_and_its_part_of_the_cache(runner):
    c = MODEL.config
    matrices = sum(runner.fixed[k].nbytes for k in ("w_qkv", "w_o", "w_gate_up", "w_down", "head"))
    token = 2 * c.layers * c.kv_heads * c.head_dim * 4
    assert runner.bytes_read([StepToken(0, 5, 9), StepToken(1, 5, 0)]) == matrices + 11 * token


def test_the_next_step_goes_on_with_the_tokens_that_were_chosen(runner):
    """As if they were given, in any order."""
    first, second = prompt(0, 6), prompt(2, 3)
    rows, tables = [first[0], second[0], *first[1:], *second[1:]], [[4], [], [7]]
    found = runner.step(rows, tables, 2)
    fast = runner.step([StepToken(2, ~1, 3), StepToken(0, ~0, 6)], tables, 2)
    again = [StepToken(2, int(found.tokens[1]), 3), StepToken(0, int(found.tokens[0]), 6)]
    slow = runner.step(again, tables, 2)
    np.testing.assert_array_equal(fast.logits, slow.logits)
    assert fast.tokens.tolist() == slow.tokens.tolist()


def test_rows_of_the_step_before_are_copied_in_runs():
    token = np.array([~3, ~4, 7, ~5, ~0, ~1, ~2])
    batch = BatchArrays(token, token, token, token, 1)
    assert batch.chained_tokens() == [(0, 3, 2), (3, 5, 1), (4, 0, 3)]
    batch = BatchArrays(np.array([5]), token, token, token, 1)
    assert batch.chained_tokens() == []


# ---- on a device -----------------------------------------------------------------------------


def test_weights_go_to_the_device_in_pieces(monkeypatch):
    monkeypatch.setattr(memory_module, "_COPY_BYTES", 100)
    driver, told = FakeDriver(), []
    x, y = np.arange(60, dtype=np.float32).reshape(3, 20), np.ones(3, np.int32)
    with installed(lambda: driver):
        memory = DeviceMemory()
        driver.log.clear()
        found = memory.place_weights({"x": x, "y": y}, lambda *told_of: told.append(told_of))
        assert driver.log.count("cuMemcpyHtoD_v2") == 4
        assert told == [("x", 100, 252), ("x", 200, 252), ("x", 240, 252), ("y", 252, 252)]
        np.testing.assert_array_equal(memory.fetch(found["x"]), x)
        assert memory.place_weights(found | {"x": "on a device"}, None)["x"] == "on a device"
        memory.close()
        assert not driver.memory


ASIDE = 2  # the stream of copies


@pytest.fixture
def on_device():
    driver = FakeDriver()
    weights = pack_weights(MODEL.checkpoint, "cuda", runner_module.DTYPES["bf16"].numpy)
    with installed(lambda: driver), fake_kernels():
        made = Runner(MODEL.config, weights, target="cuda", **SIZES)
        yield made, driver
        made.close()
        assert not driver.memory


def test_a_step_on_a_device_is_one_copy_there_and_one_back(on_device):
    """Beside the stream of the launches."""
    made, driver = on_device
    for position in range(2):
        made.step([StepToken(0, 5, position)], [[3]], logits=0)
    driver.copies.clear()
    found = made.step([StepToken(0, 77, 2)], [[3]], logits=0)
    assert found.tokens.tolist() == [78] and made.ready(1).bindings == 2, "one for each turn"
    assert driver.copies == [("HtoD", ASIDE), ("DtoH", ASIDE)]
    assert driver.streams == [0, 1], "the second is in no order with others"


def test_nothing_stands_between_the_launches_of_steps_that_only_go_on(on_device):
    """Their tokens are read where the step before has left them."""
    made, driver = on_device
    tables = [[3], [4], [5]]
    made.launch([StepToken(r, 10 * r, 0) for r in range(3)], tables, 3)
    for k in range(1, 5):
        driver.copies.clear()
        made.launch([StepToken(r, ~r, k) for r in range(3)], tables, 3)
        assert all(stream == ASIDE for _, stream in driver.copies)
        assert made.result(0).tokens.tolist() == [10 * r + k for r in range(3)]
    assert made.result(0).tokens.tolist() == [5, 15, 25]


def test_block_tables_are_new_in_every_buffer(on_device):
    made, _ = on_device
    for pages in ([1], [2], [2], [2, 6]):
        made.step([StepToken(0, 5, 3)], [pages], logits=0)
        table = made._tables.device_table(made._buffer_index)
        assert np.asarray(table).reshape(3, -1)[0, : len(pages)].tolist() == pages


def test_a_launch_that_never_ends_is_told_apart_from_one_that_takes_long(on_device, monkeypatch):
    made, driver = on_device
    monkeypatch.setattr(memory_module, "_DEVICE_CHECK_S", 0.001)
    looks, kernel = iter([False] * 300 + [True]), made.ready(1)
    kernel.has_ended = lambda _: next(looks)
    driver.answers["cuStreamQuery"] = lambda _: 600  # not ready
    assert made.step([StepToken(0, 5, 0)], [[3]], logits=0).tokens.tolist() == [6]
    kernel.has_ended = lambda _: False
    made._bound.clear()
    driver.answers.clear()
    with pytest.raises(DeviceFailed, match="its workers have not"):
        made.step([StepToken(0, 5, 1)], [[3]], logits=0)


def test_a_lost_device_is_an_error(on_device, monkeypatch):
    made, driver = on_device
    monkeypatch.setattr(memory_module, "_DEVICE_CHECK_S", 0.001)
    made.ready(1).has_ended = lambda _: False
    driver.answers["cuStreamQuery"] = lambda _: 2
    with pytest.raises(DeviceFailed, match="cuStreamQuery answers CUDA_ERROR_OUT_OF_MEMORY"):
        made.step([StepToken(0, 5, 0)], [[3]], logits=0)


@pytest.mark.parametrize("late", (set(), {ASIDE}), ids=("early", "late"))
def test_a_step_may_be_begun_before_the_one_is_over_whose_tokens_it_takes(on_device, late):
    """What comes back is of the first, whatever the second has written since."""
    made, driver = on_device
    driver.late = late
    made.launch([StepToken(0, 70, 0), StepToken(1, 80, 0), StepToken(2, 90, 0)], [[3], [4], [5]], 3)
    made.launch([StepToken(2, ~2, 1), StepToken(0, ~0, 1)], [[3], [], [5]], 2)
    assert made.result(0).tokens.tolist() == [71, 81, 91]
    made.launch([StepToken(0, ~1, 2)], [[3]], 1)
    assert made.result(0).tokens.tolist() == [92, 72]
    assert made.result(0).tokens.tolist() == [73]
    assert driver.log.count("cuMemcpyDtoDAsync_v2") == 3
    assert "cuCtxSynchronize" not in driver.log[-30:]


def test_the_device_sees_rows_slots_and_pages(on_device):
    made, _ = on_device
    made.step([StepToken(1, 5, 70), StepToken(0, 6, 2), StepToken(1, 4, 69)], [[4], [2, 7]], 2)
    seen, dims, page = made.ready(3).arrays, made.ready(3).dims, made.page
    assert dims | {"S": 2, "P": 1, "R": 3, "pages": 8} == dims
    assert np.asarray(seen["token"]).tolist() == [5, 6, 4]
    flat = [2, 7][70 // page] * page + 70 % page
    assert np.asarray(seen["slot"]).tolist() == [flat, 4 * page + 2, flat - 1]
    assert np.asarray(seen["table"]).reshape(3, -1)[1, :2].tolist() == [2, 7]


def test_weights_on_the_device_are_those_of_the_checkpoint(on_device):
    made, _ = on_device
    want = pack_weights(MODEL.checkpoint, "cuda", runner_module.DTYPES["bf16"].numpy)
    np.testing.assert_array_equal(made.memory.fetch(made.fixed["w_down"]), want["w_down"])


class Twins(HostMemory):
    """Two buffers whose device side has only what was sent; records the bytes of each copy."""

    num_buffers = 2

    def __init__(self) -> None:
        self.copies: list[int] = []

    def shared(self, shape, dtype, is_async=False):
        return Shared(np.zeros(shape, dtype), np.zeros(shape, dtype))

    def send(self, x, count=None, first=0):
        sent = slice(first, None if count is None else first + count)
        x.device.reshape(-1)[sent] = x.host.reshape(-1)[sent]
        self.copies.append(x.host.reshape(-1)[sent].nbytes)


def of_positions(positions):
    return RunnerLimits(256, 128, 64, 64, positions, 10**6, 64, 2)


def test_the_kernel_sees_the_pages_of_every_request():
    rng, memory = np.random.default_rng(0), Twins()
    tables, pages = DeviceBlockTables(of_positions(4096), memory), [[] for _ in range(64)]
    for step in range(60):
        for k in rng.choice(64, rng.choice([0, 1, 7, 8, 9, 40]), replace=False):
            more = rng.integers(0, 10**6, rng.integers(1, 4)).tolist()
            pages[k] = (pages[k] + more)[:64] if rng.random() < 0.8 else more
        tables.send(pages[: rng.choice([40, 64])], step % 2)
        seen = tables.device_table(step % 2).reshape(64, -1)
        for k in range(40):
            assert seen[k, : len(pages[k])].tolist() == pages[k], (step, k)


def test_a_long_context_makes_no_step_send_more():
    sent = []
    for positions in (2048, 131072):
        memory = Twins()
        tables, pages = DeviceBlockTables(of_positions(positions), memory), [[k] for k in range(64)]
        tables.send(pages, 0), tables.send(pages, 1)
        memory.copies.clear()
        for step in range(40):
            pages[step].append(100 + step)
            tables.send(pages, step % 2)
        sent.append(memory.copies)
    assert sent[0] == sent[1] and max(sent[0]) == 8 and len(sent[0]) == 79
