"""Builds the kernels that tools/compare_kernels.py compares, with the eventtensor on the path:

    python tools/kernel_set.py OUT [NAME ..]

writes NAME.cu and NAME.cubin (sm_90a) of each. A version of the package has its own version of this
file, because names inside of the package change."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from shutil import copyfile

import eventtensor as et
from eventtensor.codegen.cuda import generate
from eventtensor.compiler import run_passes
from eventtensor.config import Options, environment
from eventtensor.lang.program_builder import Program
from eventtensor.llm.model.decoder_tasks import Weights
from eventtensor.llm.model.llama import llama
from eventtensor.llm.model.model_presets import PRESETS
from eventtensor.llm.runner.runner import layout_of
from eventtensor.runtime.cuda.cuda_build import build_cubin

ARCHITECTURE = "sm_90a"
ROWS = 128  # of a model's largest step


def step(model: str, rows: int, decode_only: bool = False) -> Callable[[], Program]:
    """The step of a model as a runner compiles it; `decode_only`: rows have a request each."""

    def program() -> Program:
        weights = Weights(layout_of("cuda", "bf16", ROWS), et.bf16)
        return llama(PRESETS[model], weights, tokens=rows, sampling=True, decode_only=decode_only)

    return program


def example(name: str, function: str) -> Callable[[], Program]:
    def program() -> Program:
        made: Program = getattr(import_module(f"examples.{name}"), function)()
        return made

    return program


KERNELS: dict[str, Callable[[], Program]] = {
    "llama-3.2-1b-1": step("llama-3.2-1b", 1),
    "llama-3.2-1b-16": step("llama-3.2-1b", 16, decode_only=True),
    "llama-3.2-1b-64": step("llama-3.2-1b", 64, decode_only=True),
    "llama-3.2-1b-128": step("llama-3.2-1b", 128),
    "qwen3-8b-1": step("qwen3-8b", 1),
    "qwen3-8b-128": step("qwen3-8b", 128),
    "qwen3-30b-a3b-1": step("qwen3-30b-a3b", 1),
    "qwen3-30b-a3b-128": step("qwen3-30b-a3b", 128),
    "smollm2-135m-64": step("smollm2-135m", 64, decode_only=True),
    "tiny-qwen3-moe-64": step("tiny-qwen3-moe", 64, decode_only=True),
    "mlp": example("mlp", "mlp"),
    "moe": example("moe", "moe"),
}


def main(out: str, *names: str) -> None:
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    for name in names or KERNELS:
        source = generate(run_passes(KERNELS[name](), Options("cuda")).plan).text
        (folder / f"{name}.cu").write_text(source)
        built = build_cubin(source, "kernel", ARCHITECTURE, environment())
        copyfile(built.path, folder / f"{name}.cubin")
        print(f"{name}: {built.usage}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
