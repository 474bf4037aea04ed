"""Plans on an NVIDIA GPU: generate, build, and in debug check what runtime data has promised."""

from __future__ import annotations

from collections.abc import Mapping

from ...codegen.cuda import KERNEL, CudaSource, generate
from ...config import Environment, Options, environment
from ...ir.plan import Buffer, Plan
from ..facts import check_computed, check_inputs
from ..interface import Placed, interface_of
from ..record import LaunchRecord
from ..trace import tensors_of_maps
from .arrays import on_host
from .build import build_cubin
from .driver import device
from .image import Image
from .kernel import TRACE_RECORDS, Array, DeviceKernel


class CudaKernel(DeviceKernel):
    """A plan as one cooperative kernel, compiled for the device that the options name."""

    def __init__(
        self, plan: Plan, options: Options, env: Environment | None = None,
        trace_capacity: int = TRACE_RECORDS,
    ) -> None:
        env = env or environment()
        self.plan, self.options = plan, options
        place = device(options.device)
        made = generate(plan, place.target, options.debug, options.trace)
        built = build_cubin(made.text, plan.program.name, place.target.architecture, env)
        self.library, self.compilations, self.from_cache = built.path, 1, not built.fresh
        cubin = built.path.read_bytes()
        image = image_of(plan, options, made, place.target.architecture, cubin)
        super().__init__(image, place, options.workers, env.wait_limit_s, trace_capacity)

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
        """What the last launch did, task by task."""
        return self.traced(tensors_of_maps(self.plan))


def image_of(
    plan: Plan, options: Options, made: CudaSource, architecture: str, cubin: bytes
) -> Image:
    def placed(buffers: tuple[Buffer, ...]) -> tuple[Placed, ...]:
        return tuple(Placed(b.tensor, b.offset) for b in buffers)

    return Image(
        interface_of(plan), architecture, KERNEL, made.cells, made.arena, plan.workspace,
        plan.word_bytes, placed(plan.buffers), placed(plan.words), made.zeroed,
        made.aligned, made.maps, made.rank, made.threads, made.shared_bytes, options.debug,
        options.trace, cubin, made.text,
    )
