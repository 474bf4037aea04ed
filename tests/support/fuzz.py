"""Random damage, and a child in which it does its worst: with a seed, in bounded time and memory.

ET_FUZZ_SECONDS is how long all tests together try (24 by default), ET_FUZZ_SEED where they begin.
"""

from __future__ import annotations

import os
import random
import resource
import struct
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from eventtensor.errors import EventTensorError

TESTS = 8  # that share the time
SECONDS = float(os.environ.get("ET_FUZZ_SECONDS", "24")) / TESTS
SEED = int(os.environ.get("ET_FUZZ_SEED", "0"))
MEMORY = 2 << 30  # bytes of address space beyond what a child begins with
SLOW_S = 10.0  # of the processor for one case: far more than any takes
HUGE = (0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63, 2**64 - 1)
ODD = (None, True, -1, 0, 1, 2**31, 10**30, 1.5, float("nan"), float("inf"), "", "x", "\ud800",
       "a" * 10000, [], [1], ["a"], [[]], {}, {"a": 1})


def damaged(data: bytes, rng: random.Random, until: int | None = None) -> bytes:
    """One to three things that happen to files: flipped bits, huge numbers, pieces cut out, put in,
    or written twice; all of it before byte `until`."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        end = max(1, min(len(out), until or len(out)))
        at = rng.randrange(end)
        match rng.randrange(6):
            case 0:
                out[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                out[at : at + 1] = bytes(b ^ 1 << rng.randrange(8) for b in out[at : at + 1])
            case 2:
                out[at : at + 8] = struct.pack("<Q", rng.choice(HUGE))
            case 3:
                del out[at:]
            case 4:
                del out[at : at + rng.randint(1, 16)]
            case _:
                out[at:at] = out[at : at + rng.randint(1, 64)]
    return bytes(out)


def odd(value: object, rng: random.Random) -> object:
    """The value with something in it replaced, taken away or put in."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(sorted(value))
        out = dict(value)
        if rng.random() < 0.15:
            del out[key]
        else:
            out[key] = odd(value[key], rng)
        return out
    if isinstance(value, list) and value and rng.random() < 0.7:
        at = rng.randrange(len(value))
        return [*value[:at], odd(value[at], rng), *value[at + 1 :]]
    return rng.choice(ODD)


def cases() -> Iterator[random.Random]:
    """One source of chance for each case, until the time is over; ten cases at least."""
    end, number = time.monotonic() + SECONDS, 0
    while number < 10 or time.monotonic() < end:
        yield random.Random(f"{SEED} {number}")
        number += 1


def survives(case: Callable[[random.Random], None]) -> None:
    """Runs cases in a forked child of bounded memory. An error of ours is a fine answer; anything
    else, death too, fails with the case's text."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        _child(case, write)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read().decode(errors="replace")
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert (status, said) == (0, "done"), f"ended with {status}:\n{said}"


def _child(case: Callable[[random.Random], None], pipe: int) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY,) * 2)
    try:
        for number, rng in enumerate(cases()):
            began = time.process_time()
            try:
                case(rng)
            except EventTensorError as e:
                str(e).encode(errors="backslashreplace")
            took = time.process_time() - began
            assert took < SLOW_S, f"case {number} took {took:.0f} s"
        os.write(pipe, b"done")
        os._exit(0)
    except BaseException:
        os.write(pipe, f"seed {SEED}, case {number}\n{traceback.format_exc()}".encode())
        os._exit(1)
