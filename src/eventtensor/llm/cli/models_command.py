"""`eventtensor models`: prints the table of models that have a name."""

from __future__ import annotations

from math import prod

from rich.table import Table

from ...errors import EventTensorError
from ..model.model_config import ModelConfig
from ..model.model_presets import PRESETS
from ..weights.checkpoint import shapes
from ..weights.model_source import smollm2_path
from .terminal import terminal


def models_table() -> None:
    table = Table("name", "parameters", "layers", "what", box=None, pad_edge=False)
    try:
        smollm2_path()
        what = "SmolLM2-135M-Instruct"
    except EventTensorError as e:
        what = f"SmolLM2-135M-Instruct: {e.hint}"
    table.add_row("smollm2", *_size(PRESETS["smollm2-135m"]), what)
    for name, config in PRESETS.items():
        table.add_row(f"random:{name}", *_size(config), "random weights; ?seed=3 gives others")
    table.add_row("FOLDER", "", "", "Hugging Face: config.json and safetensors")
    table.add_row("FILE", "", "", "GGUF: F32, F16, BF16, Q8_0, Q4_0 or Q4_1")
    terminal().print(table)


def _size(config: ModelConfig) -> tuple[str, str]:
    count = sum(prod(s) for s in shapes(config).values())
    shown = f"{count / 1e9:.1f} B" if count >= 1e9 else f"{count / 1e6:.3g} M"
    return shown, str(config.layers)
