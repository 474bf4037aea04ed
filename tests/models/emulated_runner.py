"""A runner on the emulated GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from itertools import count
from typing import Any
from unittest.mock import patch

from eventtensor.llm.model.llama import llama
from eventtensor.llm.runner import model_artifact as artifact_module
from eventtensor.llm.runner.runner import Runner
from eventtensor.runtime.cuda import cuda_kernel
from tests.models.tiny_models import Pair
from tests.support.emulated import DEVICE, EmulatedDriver, Emulation, _no_cubin
from tests.support.fake_driver import installed


class EmulatedKernels(EmulatedDriver):
    """Each kernel has a number, and a launch of it runs its own code."""

    def __init__(self) -> None:
        super().__init__(devices=1)
        self._numbers = count(8)
        self._kernels: dict[int, tuple[int, int, bool, Emulation]] = {}

    def add(self, kernel: cuda_kernel.CudaKernel, seed: int) -> None:
        known, run = kernel.image.interface, Emulation(kernel.source, self, seed, 20.0, DEVICE)
        words = max(1, len(known.dims)) + max(1, len(known.tensors))
        self._kernels[kernel._function] = (
            kernel.image.rank, words, bool(kernel.image.maps), run)

    def _cuModuleGetFunction(self, out: Any, *_: Any) -> None:
        out._obj.value = next(self._numbers)

    def _cuLaunchKernelEx(self, config: Any, kernel: Any, params: Any, _: None) -> None:
        self.rank, self.words, self.maps, self.run = self._kernels[kernel.value]
        super()._cuLaunchKernelEx(config, kernel, params, None)


@contextmanager
def emulated_runner(
    pair: Pair, seed: int = 0, span: int | None = None, batch_invariant: bool = True
) -> Iterator[Runner]:
    """`span`: that of attention, instead of the model's own."""
    driver = EmulatedKernels()
    with (
        installed(lambda: driver),
        patch.object(cuda_kernel, "build_cubin", _no_cubin),
        patch.object(artifact_module, "llama", partial(llama, span=span)),
        closing(pair.runner("cuda", workers=2, batch_invariant=batch_invariant)) as runner,
    ):
        for made in runner.kernels.all():
            kernel = made.backend
            assert isinstance(kernel, cuda_kernel.CudaKernel)
            driver.add(kernel, seed)
        yield runner
