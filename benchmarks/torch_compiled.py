"""The second peer of decode.py: the step of torch_decode.py through torch.compile, then in a CUDA
graph. Compiling takes long, so each case has a process, and they compile beside each other; each
then waits to be asked, and is alone on the GPU when it first runs, tunes and measures.

A child is started as `torch_compiled.py JSON` and prints a JSON object when it has compiled, and
another when it has measured.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from eventtensor.llm.model.model_presets import PRESETS

THREADS = "2"  # of inductor's own, in each of many processes
START_S = 90  # to import torch and to make the weights, beside others
MEASURE_S = 90


@dataclass(frozen=True)
class Task:
    """What a child does. It gives up compiling after `limit_s`; `tuned` searches the shapes of
    its kernels, without which a product with one row is not bound by memory."""

    model: str
    batch: int
    context: int
    temperature: float
    top_p: float
    samples: int
    steps: int
    limit_s: int
    tuned: bool
    device: str = "cuda"


@dataclass(frozen=True)
class Measured:
    """Milliseconds of a step, and seconds of the compile; or why there are none."""

    ms: tuple[float, ...] = ()
    compile_s: float = 0.0
    refused: str = ""


class CompiledPeer:
    """A child, from the side of who asks it."""

    script = Path(__file__)

    def __init__(self, task: Task) -> None:
        self.task, self._answer = task, Measured(refused="not started")
        self._child: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Returns when the child has compiled, or has not."""
        env = {"TORCHINDUCTOR_COMPILE_THREADS": THREADS, **os.environ}
        command = [sys.executable, str(self.script), json.dumps(asdict(self.task))]
        self._child = subprocess.Popen(
            command, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True,
        )
        self._answer = self._read(START_S + self.task.limit_s)

    def measure(self) -> Measured:
        """Nothing else may run on the GPU."""
        if self._child is None or self._answer.refused:
            return self._answer
        assert self._child.stdin is not None
        with suppress(BrokenPipeError):  # then there is no answer either
            self._child.stdin.write("now\n")
            self._child.stdin.flush()
        self._answer = replace(self._read(MEASURE_S), compile_s=self._answer.compile_s)
        return self._answer

    def _read(self, seconds: float) -> Measured:
        """The next JSON object of the child, which is ended if it takes longer."""
        assert self._child is not None and self._child.stdout is not None
        clock, last = threading.Timer(seconds, self.close), "nothing"
        clock.start()
        try:
            for line in self._child.stdout:
                if line.startswith("{"):
                    found = json.loads(line)
                    return Measured(**found | {"ms": tuple(found.get("ms", ()))})
                last = line.strip() or last
        finally:
            clock.cancel()
        return Measured(refused=f"ended ({self._child.wait()}), after {last[:400]}")

    def close(self) -> None:
        """Ends the child, and the processes that inductor has."""
        if self._child is not None and self._child.poll() is None:
            os.killpg(self._child.pid, signal.SIGKILL)
            self._child.wait()


# ---- the child -------------------------------------------------------------------------------


def say(**found: Any) -> None:
    print(json.dumps(found), flush=True)


def two_halves(compile_graph: Callable[..., Any], asked: Callable[[], object]) -> Any:
    """A backend that waits between compiling a graph and handing it over to be run."""
    started = time.perf_counter()

    def backend(graph: Any, inputs: Any) -> Any:
        made = compile_graph(graph, inputs)
        signal.alarm(0)
        say(compile_s=time.perf_counter() - started)
        asked()
        return made

    return backend


class TooLong(Exception):
    """Compiling is given up."""


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    """TooLong if what is done here takes longer, unless `signal.alarm(0)` comes first. Compilers
    wrap what is raised inside them, so that the clock says what it was."""
    rang = []

    def give_up(*_: object) -> None:
        rang.append(True)
        raise TooLong

    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    try:
        yield
    except Exception as e:
        if rang:
            raise TooLong from e
        raise
    finally:
        signal.alarm(0)


def compiled_step(task: Task) -> tuple[Callable[[], None], Any]:
    """The step, which compiles when it is first called, and the decoder that it belongs to."""
    import torch
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx

    from benchmarks.torch_decode import TorchDecoder, TorchWeights

    config.coordinate_descent_tuning = task.tuned
    weights = TorchWeights(PRESETS[task.model], task.device)
    made = TorchDecoder(weights, task.batch, task.context, task.temperature, task.top_p)
    backend = two_halves(compile_fx, sys.stdin.readline)
    return torch.compile(made.step, backend=backend, fullgraph=True, dynamic=False), made


def child(task: Task) -> None:
    import torch

    from benchmarks.measure import gpu_us, graph

    with torch.no_grad():
        step, _ = compiled_step(task)
        try:
            with limited(task.limit_s):
                step()
        except TooLong:
            say(refused=f"compiling takes longer than {task.limit_s} s")
            return
        us = gpu_us(graph(step, task.steps), task.samples, task.steps)
    say(ms=[u / 1e3 for u in us])


if __name__ == "__main__":
    child(Task(**json.loads(sys.argv[1])))
