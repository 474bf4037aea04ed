"""A runner whose GPU is the emulator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from unittest.mock import patch

from models.tiny import Pair
from support.emulated import DEVICE, EmulatedDriver, Emulation, _no_cubin
from support.fake_driver import installed

from eventtensor.models import runner as runner_module
from eventtensor.models.attention import Spans
from eventtensor.models.llama import llama
from eventtensor.models.runner import Runner
from eventtensor.runtime.cuda import compiled


@contextmanager
def emulated_runner(pair: Pair, seed: int = 0, spans: Spans | None = None) -> Iterator[Runner]:
    """`spans`: those of attention, instead of the model's own."""
    driver = EmulatedDriver(devices=1)
    with (
        installed(lambda: driver), patch.object(compiled, "build_cubin", _no_cubin),
        patch.object(runner_module, "llama", partial(llama, spans=spans)),
        closing(pair.runner("cuda", workers=2)) as runner,
    ):
        kernel = runner.kernel.backend
        assert isinstance(kernel, compiled.CudaKernel)
        known = kernel.image.interface
        driver.rank = kernel.image.rank
        driver.words = max(1, len(known.dims)) + max(1, len(known.tensors))
        driver.run = Emulation(kernel.source, driver, seed, 20.0, DEVICE)
        yield runner
