"""What a long check says of itself, and when it says nothing. The clock is the test's own."""

from __future__ import annotations

import io
import logging
import threading

import pytest

import eventtensor as et
from eventtensor import progress
from eventtensor.progress import Progress, doing, in_pass, shown


class Terminal(io.StringIO):
    """A stream that is a terminal, and tells when something was written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = threading.Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        found = super().write(text)
        self.written.set()
        return found


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_nothing_is_said_for_two_seconds_and_the_line_goes_at_the_end(clock):
    out = Terminal()
    p = Progress("program 'moe'", out, clock)
    p.stage, p.what = "verify", "'gate_up' before 'down' on h (raw)"
    clock.now += 1.9
    p.tick()
    assert out.getvalue() == ""
    clock.now += 1.2
    p.tick()
    assert out.getvalue() == (
        "\r\x1b[Kprogram 'moe': verify: 'gate_up' before 'down' on h (raw) (3 s)")
    p.end()
    assert out.getvalue().endswith("\r\x1b[K")
    other = Progress("next", out, clock)  # the terminal is free again
    clock.now += 3
    other.tick()
    assert other.on_line
    other.end()


def test_one_line_is_for_one_thread_at_a_time(clock):
    out = Terminal()
    first, second = Progress("first", out, clock), Progress("second", out, clock)
    clock.now += 3
    first.tick()
    second.tick()
    first.end()
    second.end()
    assert "first" in out.getvalue() and "second" not in out.getvalue()


def test_a_line_fits_the_terminal(clock, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    out = Terminal()
    p = Progress("program 'with a very long name'", out, clock)
    clock.now += 3
    p.tick()
    assert len(out.getvalue().removeprefix("\r\x1b[K")) == 19
    p.end()


def test_a_logger_that_takes_info_gets_a_record_for_each_long_step(clock, caplog):
    out = Terminal()
    with caplog.at_level(logging.INFO, logger="eventtensor"):
        p = Progress("program 'moe'", out, clock)
        for what, seconds in (("one", 3.0), ("one", 3.0), ("two", 0.5), ("three", 2.0)):
            p.what = what
            clock.now += seconds
            p.tick()
        p.end()
    assert [r.getMessage() for r in caplog.records] == [
        "program 'moe': one (3 s)", "program 'moe': two (6 s)", "program 'moe': three (8 s)"]
    assert out.getvalue() == ""


def test_a_stream_that_is_no_terminal_gets_nothing(monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr(progress.sys, "stderr", out)
    monkeypatch.setattr(progress, "PATIENCE_S", 0.0)
    before = threading.active_count()
    with shown("x"):
        doing("a")
        assert threading.active_count() == before
    assert out.getvalue() == ""


def test_a_long_block_is_shown_while_it_runs(monkeypatch):
    out = Terminal()
    monkeypatch.setattr(progress.sys, "stderr", out)
    monkeypatch.setattr(progress, "PATIENCE_S", 0.0)
    monkeypatch.setattr(progress, "TICK_S", 0.001)
    with shown("program 'p'"):
        in_pass("verify")
        doing("the counts of event 'e'")
        out.written.clear()
        assert out.written.wait(60)
        with shown("inside"):  # belongs to the block around it
            pass
    assert "program 'p': verify: the counts of event 'e'" in out.getvalue()
    assert "inside" not in out.getvalue() and out.getvalue().endswith(progress.CLEAR)


class Recorder:
    """Stands where a Progress would."""

    stage = ""

    def __init__(self) -> None:
        self.steps: list[tuple[str, str]] = []

    @property
    def what(self) -> str:
        return self.steps[-1][1]

    @what.setter
    def what(self, value: str) -> None:
        self.steps.append((self.stage, value))


def test_check_names_the_pass_and_what_is_proved():
    @et.task
    def copy(x, o):
        o[:] = x

    p, n = et.Program("watched"), et.dim("n", max=64)
    x, s, o = p.input("x", (n,), et.f32), p.scratch("s", (n,), et.f32), p.output("o", (n,), et.f32)
    p.call(copy, name="first", grid=(n,), reads=lambda i: x[i], writes=lambda i: s[i])
    p.call(copy, name="second", grid=(n,), reads=lambda i: s[i], writes=lambda i: o[i])
    recorder = Recorder()
    token = progress._CURRENT.set(recorder)  # type: ignore[arg-type]
    try:
        assert et.check(p).ok
    finally:
        progress._CURRENT.reset(token)
    for step in (("derive", "who reads and writes s"),
                 ("derive", "the edge from 'first' to 'second'"),
                 ("verify", "the indices of call 'second'"),
                 ("verify", "the counts of event 'first_done'"),
                 ("verify", "'first' before 'second' on s (raw)")):
        assert step in recorder.steps
