"""`eventtensor compile`: compiles the kernels of a model into a folder, without its weights."""

from __future__ import annotations

import time
from pathlib import Path

from ...errors import BadOption
from ..model.decoder_tasks import Weights
from ..model.step_limits import MAX_TOKENS
from ..runner.model_artifact import KernelSetSpec, compile_kernels, save_kernels
from ..runner.runner import DTYPES, layout_of
from ..runner.target_name import find_target
from ..weights.model_source import open_model
from .terminal import terminal


def compile_model(
    name: str, folder: Path, target: str, dtype: str, batch_invariant: bool,
    device: str | None = None,
) -> None:
    """A device by its name is a GPU that need not be here."""
    for path in (folder, *folder.absolute().parents):
        if path.is_file():
            raise BadOption(f"{path} is a file", hint="name a folder, which is made if need be")
    options = {} if device is None else {"device": device}
    start_s, found = time.perf_counter(), find_target(target, device)
    spec = KernelSetSpec(open_model(name).config, found, dtype, MAX_TOKENS, True, batch_invariant)
    layout = layout_of(found, dtype, MAX_TOKENS, batch_invariant)
    kernels = compile_kernels(spec, Weights(layout, DTYPES[dtype]), options)
    try:
        save_kernels(spec, kernels, folder)
    finally:
        kernels.close()
    duration_s = time.perf_counter() - start_s
    machine = found if device is None else device
    terminal(stderr=True).print(f"{folder}: {name} for {machine} in {duration_s:.1f} s")
