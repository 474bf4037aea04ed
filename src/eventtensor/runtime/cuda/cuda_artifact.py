"""Artifacts of CUDA kernels: folders with kernel.cubin, kernel.json and kernel.cu.

kernel.json has the facts that a launch needs, with expressions over dims as text; kernel.cu is for
readers. Loading needs no compiler.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from ...codegen.cuda.abi import VERSION
from ...codegen.cuda.maps import MappedTensor, PagedTensor
from ...errors import WrongDevice
from ...ir.expr import text
from ..interface_json import (
    FACTS,
    FactsReader,
    Json,
    check_places,
    facts_of,
    facts_of_places,
    read_facts,
    read_file,
)
from ..store import facts_of_data, translate_write_errors, write_atomically
from .image import Image

CUBIN, SOURCE = "kernel.cubin", "kernel.cu"


def save(image: Image, folder: str | Path) -> None:
    """Write the three files. The facts are last, so that a folder with facts is complete."""
    place = Path(folder)
    with translate_write_errors(place):
        place.mkdir(parents=True, exist_ok=True)
    write_atomically(place / CUBIN, image.cubin)
    write_atomically(place / SOURCE, image.source.encode())
    write_atomically(place / FACTS, (json.dumps(_facts(image), indent=1) + "\n").encode())


def read(folder: str | Path) -> Image:
    """The image that `save` wrote."""
    place = Path(folder)

    def made(facts: Json) -> Image:
        known = FactsReader(facts)
        cubin = known.data(place, CUBIN)
        image = _image(known, cubin, read_file(place, SOURCE).decode())
        check_places(image.interface, [(image.workspace, image.buffers),
                                       (image.word_bytes, ())])
        return image

    return read_facts(place, "abi", VERSION, made)


def check_architecture(image: Image, architecture: str) -> None:
    """Raise unless the code runs on `architecture`. Code for sm_90a runs on sm_90a alone. Code
    without the a runs on later architectures of the same major number."""
    made, here = image.architecture, architecture
    if made == here:
        return
    older = made[:-1] == here.rstrip("a")[:-1] and made <= here.rstrip("a")
    if made.endswith("a") or not older:
        raise WrongDevice(f"'{image.interface.name}' was made for {made}, but this GPU is {here}",
                          hint=f"compile it for this GPU: target='cuda', device={here!r}")


# ---- to JSON and back ----------------------------------------------------------------------


def _facts(image: Image) -> Json:
    return {
        "abi": VERSION,
        "architecture": image.architecture,
        "entry": image.entry,
        **facts_of(image.interface),
        "cells": text(image.cells),
        "arena": text(image.arena),
        "workspace": text(image.workspace),
        "word_bytes": text(image.word_bytes),
        "buffers": facts_of_places(image.buffers),
        "words": facts_of_places(image.words),
        "zeroed": list(image.zeroed),
        "aligned": list(image.aligned),
        "maps": [asdict(m) for m in image.maps],
        "rank": image.rank,
        "threads": image.threads,
        "shared_bytes": image.shared_bytes,
        "debug": image.debug,
        "trace": image.trace,
        "files": {CUBIN: facts_of_data(image.cubin)},
    }


def _image(known: FactsReader, cubin: bytes, source: str) -> Image:
    facts, node, places = known.facts, known.node, known.places
    return Image(
        known.interface(), facts["architecture"], facts["entry"],
        node("cells"), node("arena"), node("workspace"),
        node("word_bytes"), places("buffers"), places("words"), tuple(facts["zeroed"]),
        tuple(facts["aligned"]),
        tuple((PagedTensor if "piece" in m else MappedTensor)(**m) for m in facts["maps"]),
        known.rank(), known.integer("threads", 1024),
        known.integer("shared_bytes", 1 << 20),
        bool(facts["debug"]), bool(facts["trace"]), cubin, source,
    )
