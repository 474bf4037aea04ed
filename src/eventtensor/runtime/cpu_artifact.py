"""Artifacts of kernels for threads: folders with kernel.so, kernel.json and kernel.cpp.

kernel.json has the facts that a launch needs; kernel.cpp is for readers. Loading needs no compiler,
and the processor for which the kernel was built.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from ..codegen.abi import VERSION
from ..config import checked_workers, environment
from ..errors import CannotWrite, WrongDevice
from ..ir.expr import text
from ..targets.cpu_target import processor
from .arguments import bind
from .interface_json import (
    FACTS,
    FactsReader,
    Json,
    check_places,
    facts_of,
    facts_of_places,
    read_facts,
)
from .store import facts_of_data, translate_write_errors, write_atomically
from .thread_kernel import CpuImage, ThreadKernel

LIBRARY, SOURCE = "kernel.so", "kernel.cpp"


def save(image: CpuImage, source: str, folder: str | Path) -> None:
    """Write the three files. The facts are last, so that a folder with facts is complete."""
    place = Path(folder)
    with translate_write_errors(place):
        place.mkdir(parents=True, exist_ok=True)
    try:
        library = image.library.read_bytes()
    except OSError as e:
        raise CannotWrite(f"{place} cannot be written: {image.library}: {e.strerror}",
                          hint="the cache has been emptied: compile again, then save") from e
    write_atomically(place / LIBRARY, library)
    write_atomically(place / SOURCE, source.encode())
    facts = {"cpu_abi": VERSION, "processor": processor(), **facts_of(image.interface),
             "rank": image.rank, "workspace": text(image.workspace),
             "buffers": facts_of_places(image.buffers),
             "files": {LIBRARY: facts_of_data(library)}}
    write_atomically(place / FACTS, (json.dumps(facts, indent=1) + "\n").encode())


class LoadedThreadKernel:
    """A kernel from an artifact. Call it with arrays by name; dims come from their shapes."""

    def __init__(self, backend: ThreadKernel) -> None:
        self.backend, self.interface = backend, backend.image.interface

    def __call__(self, **arrays: object) -> None:
        """Run once and wait; outputs and states are written in place."""
        self.backend.launch(*bind(self.interface, arrays))

    def close(self) -> None:
        """Stop the workers. A closed kernel cannot be called."""
        self.backend.close()


def is_cpu_artifact(folder: str | Path) -> bool:
    """True by the facts of the folder, which may have had a kernel of another target before."""
    place = Path(folder)
    try:
        return "cpu_abi" in json.loads((place / FACTS).read_bytes())
    except (OSError, ValueError, TypeError, RecursionError):
        return os.path.isfile(place / LIBRARY)


def load(folder: str | Path, workers: int = 0) -> LoadedThreadKernel:
    """The kernel that `save` wrote."""
    place, env, threads = Path(folder), environment(), checked_workers(workers)

    def made(facts: Json) -> CpuImage:
        known = FactsReader(facts)
        if facts["processor"] != processor():
            raise WrongDevice(f"{place} was made for another processor than this one",
                              hint="compile it again on this machine")
        known.data(place, LIBRARY)
        image = CpuImage(known.interface(), known.rank(),
                         known.node("workspace"), known.places("buffers"),
                         place.resolve() / LIBRARY)
        check_places(image.interface, [(image.workspace, image.buffers)])
        return image

    image = read_facts(place, "cpu_abi", VERSION, made)
    return LoadedThreadKernel(ThreadKernel(image, threads or env.default_workers, env.wait_limit_s))
