"""`eventtensor compile`: the kernels of a model as a folder, without its weights."""

from __future__ import annotations

import time
from pathlib import Path

from ..errors import BadOption
from ..models.decoder_tasks import Weights
from ..models.model_artifact import KernelSetSpec, compiled, save
from ..models.model_source import open_model
from ..models.runner import DTYPES, layout_of
from ..models.step import MAX_TOKENS
from ..models.target_name import find_target
from .terminal import terminal


def compile_model(name: str, folder: Path, target: str, dtype: str, batch_invariant: bool) -> None:
    for place in (folder, *folder.absolute().parents):
        if place.is_file():
            raise BadOption(f"{place} is a file", hint="name a folder, which is made if need be")
    began, where = time.perf_counter(), find_target(target)
    made = KernelSetSpec(open_model(name).config, where, dtype, MAX_TOKENS, True, batch_invariant)
    layout = layout_of(where, dtype, MAX_TOKENS, batch_invariant)
    kernels = compiled(made, Weights(layout, DTYPES[dtype]), {})
    try:
        save(made, kernels, folder)
    finally:
        kernels.close()
    took = time.perf_counter() - began
    terminal(stderr=True).print(f"{folder}: {name} for {where} in {took:.1f} s")
