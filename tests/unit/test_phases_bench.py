"""What benchmarks/phases.py makes of a trace: phases that add up to layers, and their bytes."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.phases import EDGE, Layers, bytes_of
from eventtensor.llm.model.model_presets import PRESETS

LAYERS = 2 * EDGE + 3
RECORD = np.dtype([("call", "i4"), ("coords", "i8", (2,)), ("t_ready", "u8"), ("t_end", "u8"),
                   ("stalled", "i8")])


def kernel(lost: int = 0) -> SimpleNamespace:
    """A layer takes 10 us: two tasks of the first call end after 4, one of the second last."""
    rows = [(0, (0, 0), 0, 500, 0)]
    for layer in range(LAYERS):
        begin = 1000 + 10_000 * layer
        rows += [(1, (layer, 0), begin, begin + 3000, 1500),
                 (1, (layer, 1), begin, begin + 4000, 0),
                 (2, (layer, 0), begin + 4500, begin + 10_000, 0)]
    calls = [SimpleNamespace(name=n, vars=v) for n, v in
             (("embed", ("t",)), ("qkv_proj", ("l", "i")), ("attend", ("l", "w")))]
    found = SimpleNamespace(records=np.array(rows, RECORD), lost=lost)
    image = SimpleNamespace(interface=SimpleNamespace(calls=calls))
    return SimpleNamespace(backend=SimpleNamespace(traced=lambda: found, image=image))


def test_phases_add_up_to_a_layer() -> None:
    found = {name: rest for name, *rest in Layers.of(kernel(), LAYERS).phases()}
    assert list(found) == ["qkv_proj", "attend"]  # what is not of a layer is left out
    assert found["qkv_proj"][0] == [4.0] * 3
    assert found["attend"][0] == [6.0] * 3
    assert sorted(set(found["qkv_proj"][1])) == [3.0, 4.0]
    assert sorted(set(found["qkv_proj"][2])) == [0.0, 1.5] and not any(found["attend"][2])


def test_a_trace_that_lost_tasks_is_refused() -> None:
    with pytest.raises(RuntimeError, match="lost 3 tasks"):
        Layers.of(kernel(lost=3), LAYERS)


@pytest.mark.parametrize(("model", "phase", "used", "expected"), [
    ("llama-3.2-1b", "qkv_proj", 0, 2 * 3072 * 2048),
    ("llama-3.2-1b", "attend", 0, 2 * 2 * 16 * 1025 * 8 * 64),
    ("llama-3.2-1b", "out_add", 0, 0),
    ("qwen3-30b-a3b", "experts_gate_up", 50, 2 * 50 * 1536 * 2048),
])
def test_bytes_of_a_phase(model: str, phase: str, used: float, expected: int) -> None:
    assert bytes_of(PRESETS[model], phase, 16, 1024, used) == expected
