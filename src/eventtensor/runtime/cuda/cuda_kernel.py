"""Kernels of plans for an NVIDIA GPU. Any machine can build them; a GPU runs them.

Debug launches check declared facts of run-time data. Kernels for a GPU by its name are in
aot_kernel.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...codegen.cuda import KERNEL, CudaSource, generate
from ...config import Environment, Options, environment
from ...ir.plan import Buffer, Plan
from ...targets.target import CudaTarget
from ..chrome_trace import tensors_of_maps
from ..data_contracts import check_computed, check_inputs
from ..interface import BufferOffset, interface_of
from ..launch_record import LaunchRecord
from .cuda_artifact import check_architecture
from .cuda_build import Cubin, build_cubin
from .device_arrays import on_host
from .device_kernel import TRACE_RECORDS, Array, DeviceKernel
from .driver import device as device_of
from .image import Image


def generate_source(plan: Plan, options: Options, target: CudaTarget) -> CudaSource:
    """The source that is compiled for a plan, byte for byte."""
    return generate(plan, target, options.debug, options.trace)


@dataclass(frozen=True)
class Build:
    """The image of a plan for one kind of GPU, and the entry of the cache that has its cubin."""

    image: Image
    cubin: Cubin


def build_image(plan: Plan, options: Options, target: CudaTarget, env: Environment) -> Build:
    """Generate and compile a plan. No GPU is needed."""
    made = generate_source(plan, options, target)
    cubin = build_cubin(made.text, plan.program.name, target.architecture, env)
    code = cubin.path.read_bytes()
    return Build(image_of(plan, options, made, target.architecture, code), cubin)


class CudaKernel(DeviceKernel):
    """A plan as one cooperative kernel on the GPU that the options number. `build` is an earlier
    build for this kind of GPU."""

    def __init__(
        self, plan: Plan, options: Options, env: Environment | None = None,
        trace_capacity: int = TRACE_RECORDS, *, build: Build | None = None,
    ) -> None:
        env = env or environment()
        self.plan, self.options = plan, options
        place = device_of(options.device if isinstance(options.device, int) else 0)
        if build is None:
            build = build_image(plan, options, place.target, env)
        check_architecture(build.image, place.target.architecture)
        self.library, self.compilations = build.cubin.path, 1
        self.from_cache = not build.cubin.fresh
        super().__init__(build.image, place, options.workers, env.wait_limit_s, trace_capacity)

    def launch(
        self, dims: Mapping[str, int], arrays: Mapping[str, Array], *, delay_seed: int = 0
    ) -> None:
        """Run once and wait; in debug, facts about the data are checked before and after."""
        program = self.plan.program
        if self.options.debug:
            with self.device.active():
                check_inputs(program, dims, {n: on_host(a) for n, a in arrays.items()})
        super().launch(dims, arrays, delay_seed=delay_seed)
        if self.options.debug:
            check_computed(program, dims, self.last_call([t.name for t in program.tensors]))

    @property
    def trace(self) -> LaunchRecord:
        """The record of the last launch, task by task."""
        return self.traced(tensors_of_maps(self.plan))


def image_of(
    plan: Plan, options: Options, made: CudaSource, architecture: str, cubin: bytes
) -> Image:
    def placed(buffers: tuple[Buffer, ...]) -> tuple[BufferOffset, ...]:
        return tuple(BufferOffset(b.tensor, b.offset) for b in buffers)

    return Image(
        interface_of(plan), architecture, KERNEL, made.cells, made.arena, plan.workspace,
        plan.word_bytes, placed(plan.buffers), placed(plan.words), made.zeroed,
        made.aligned, made.maps, made.rank, made.threads, made.shared_bytes, options.debug,
        options.trace, cubin, made.text,
    )
