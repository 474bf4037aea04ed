"""Kernels as folders: kernel.cubin, kernel.json (all that a launch needs to know, with expressions
over dims as text) and kernel.cu (to read). Loading one needs no compiler and no analysis.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ...codegen.cuda.abi import VERSION
from ...errors import BadArtifact, WrongDevice
from ...ir.expr import Dim, Node, text
from ...ir.parse_expr import ExprReader, Unreadable
from ...ir.tensor import DType, Role, Tensor
from ..build import write_once
from ..interface import CallNames, EventNames, Interface
from .image import Image, Placed

CUBIN, FACTS, SOURCE = "kernel.cubin", "kernel.json", "kernel.cu"
Json = dict[str, Any]


def save(image: Image, folder: str | Path) -> None:
    """Write the three files; the facts last, so that a folder with facts is whole."""
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    write_once(place / CUBIN, image.cubin)
    write_once(place / SOURCE, image.source.encode())
    write_once(place / FACTS, (json.dumps(_facts(image), indent=1) + "\n").encode())


def read(folder: str | Path) -> Image:
    """The image that `save` wrote."""
    place = Path(folder)
    try:
        facts = json.loads(_file(place, FACTS))
        version = facts["abi"]
    except (ValueError, KeyError, TypeError) as e:
        raise BadArtifact(f"{place / FACTS} is not the facts of a kernel: {e}") from e
    if version != VERSION:
        raise BadArtifact(f"{place} has ABI version {version}, this eventtensor has {VERSION}")
    try:
        return _image(facts, _file(place, CUBIN), _file(place, SOURCE).decode())
    except (KeyError, TypeError, ValueError, Unreadable) as e:
        raise BadArtifact(f"{place / FACTS} is not whole: {e}") from e


def check_architecture(image: Image, architecture: str) -> None:
    """Code for sm_90a runs on sm_90a alone; plain code on later ones of the same major number."""
    made, here = image.architecture, architecture
    if made == here:
        return
    older = made[:-1] == here.rstrip("a")[:-1] and made <= here.rstrip("a")
    if made.endswith("a") or not older:
        raise WrongDevice(f"'{image.interface.name}' was made for {made}, but this GPU is {here}")


def _file(place: Path, name: str) -> bytes:
    try:
        return (place / name).read_bytes()
    except OSError as e:
        raise BadArtifact(f"{place / name} cannot be read: {e.strerror}") from e


# ---- to JSON -------------------------------------------------------------------------------


def _facts(image: Image) -> Json:
    known = image.interface
    return {
        "abi": VERSION,
        "program": known.name,
        "architecture": image.architecture,
        "entry": image.entry,
        "dims": [{"name": d.name, "min": d.min, "max": d.max} for d in known.dims],
        "tensors": [
            {"name": t.name, "role": t.role.value, "dtype": t.dtype.value, "shape": _texts(t.shape)}
            for t in known.tensors
        ],
        "events": [{"name": e.name, "shape": _texts(e.shape)} for e in known.events],
        "calls": [{"name": c.name, "vars": list(c.vars), "place": c.place} for c in known.calls],
        "cells": text(image.cells),
        "arena": text(image.arena),
        "workspace": text(image.workspace),
        "word_bytes": text(image.word_bytes),
        "buffers": [_placed(b) for b in image.buffers],
        "words": [_placed(b) for b in image.words],
        "zeroed": list(image.zeroed),
        "aligned": list(image.aligned),
        "rank": image.rank,
        "threads": image.threads,
        "shared_bytes": image.shared_bytes,
        "debug": image.debug,
        "trace": image.trace,
    }


def _texts(exprs: tuple[Node, ...]) -> list[str]:
    return [text(e) for e in exprs]


def _placed(b: Placed) -> Json:
    return {"tensor": b.tensor, "offset": text(b.offset)}


# ---- from JSON -----------------------------------------------------------------------------


def _image(facts: Json, cubin: bytes, source: str) -> Image:
    dims = {d["name"]: Dim(d["name"], d["min"], d["max"]) for d in facts["dims"]}
    reader = ExprReader(dims)
    node = reader.expr

    def placed(key: str) -> tuple[Placed, ...]:
        return tuple(Placed(b["tensor"], node(b["offset"])) for b in facts[key])

    return Image(
        _interface(facts, dims, reader), facts["architecture"], facts["entry"],
        node(facts["cells"]), node(facts["arena"]), node(facts["workspace"]),
        node(facts["word_bytes"]), placed("buffers"), placed("words"), tuple(facts["zeroed"]),
        tuple(facts["aligned"]), int(facts["rank"]), int(facts["threads"]),
        int(facts["shared_bytes"]),
        bool(facts["debug"]), bool(facts["trace"]), cubin, source,
    )


def _interface(facts: Json, dims: dict[str, Dim], reader: ExprReader) -> Interface:
    def shape(x: Json) -> tuple[Node, ...]:
        return tuple(reader.expr(s) for s in x["shape"])

    return Interface(
        facts["program"], tuple(dims.values()),
        tuple(
            Tensor(t["name"], Role(t["role"]), shape(t), DType(t["dtype"]))
            for t in facts["tensors"]
        ),
        tuple(EventNames(e["name"], shape(e)) for e in facts["events"]),
        tuple(CallNames(c["name"], tuple(c["vars"]), c["place"]) for c in facts["calls"]),
    )
