"""Measurements that need a process of their own; each prints one JSON object.

  deadlock SAMPLES       seconds until a planted deadlock is an error, and that a launch works after
  load FOLDER            seconds to import, to load an artifact and to launch it, without islpy
  compile N M EXAMPLE..  for each example, seconds of N compiles with no cache of any kind, of M out
                         of a full one, and of M proofs alone
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
COMPILER_ONLY = ("islpy", "cuda", "cuda.bindings", "ml_dtypes")


def run_child(*words: str, env: dict[str, str] | None = None, seconds: float = 50) -> Any:
    """The answer of a child, which is ended if it takes longer."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__)), *words], env={**os.environ, **(env or {})},
        capture_output=True, text=True, timeout=seconds, check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)} answers {done.returncode}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def seconds(run: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    result = run()
    return time.perf_counter() - started, result


# ---- a planted deadlock --------------------------------------------------------------------------


def deadlock(samples: str) -> dict[str, Any]:
    """From tile 2 on the event expects one notify more than there is; small launches are right."""
    import numpy as np

    from eventtensor.compiler import run_passes
    from eventtensor.config import Options
    from eventtensor.errors import StuckWait
    from eventtensor.ir.expr import Var, compare, select
    from eventtensor.runtime.cuda.cuda_kernel import CudaKernel
    from examples.row_sum import row_sum

    options = Options(target="cuda", schedule="static", handoff="counter")
    plan = run_passes(row_sum(), options).plan
    high = replace(plan.events[0], count=select(compare("<=", 2, Var("c0")), 5, 4))
    kernel = CudaKernel(replace(plan, events=(high, *plan.events[1:])), options)

    def launch(n: int) -> bool:
        arrays = {"a": np.ones((n, 128), np.float32), "c": np.zeros(n, np.float32)}
        try:
            kernel.launch({"n": n}, arrays)
        except StuckWait:
            return False
        return bool((arrays["c"] == 128).all())

    launch(64)
    took = []
    for _ in range(int(samples)):
        spent, ended_well = seconds(lambda: launch(65))
        if ended_well or not launch(64):
            raise RuntimeError("the deadlock was not seen, or the launch after it is wrong")
        took.append(spent)
    return {"seconds": took}


# ---- an artifact ---------------------------------------------------------------------------------


def _context() -> None:
    driver = ctypes.CDLL("libcuda.so.1")
    device, context = ctypes.c_int(), ctypes.c_void_p()
    assert driver.cuInit(0) == 0 and driver.cuDeviceGet(ctypes.byref(device), 0) == 0
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0


def load(folder: str) -> dict[str, Any]:
    """What saves the artifact is row_sum, so that the result is easy to check."""
    for name in COMPILER_ONLY:
        sys.modules[name] = None  # type: ignore[assignment]
    context, _ = seconds(_context)
    numpy, np = seconds(lambda: importlib.import_module("numpy"))
    imported, et = seconds(lambda: importlib.import_module("eventtensor"))
    loaded, kernel = seconds(lambda: et.load(folder))
    arrays = {"a": np.ones((100, 128), np.float32), "c": np.zeros(100, np.float32)}
    first, _ = seconds(lambda: kernel(**arrays))
    if not (arrays["c"] == 128).all():
        raise RuntimeError("the loaded kernel is wrong")
    return {"context": context, "numpy": numpy, "import": imported, "load": loaded,
            "first_launch": first}


# ---- compiling -----------------------------------------------------------------------------------


def _forget() -> None:
    """Empties what the analysis keeps between two compiles of one process."""
    for name, module in list(sys.modules.items()):
        if name.startswith("eventtensor.analysis"):
            for kept in vars(module).values():
                if hasattr(kept, "cache_clear"):
                    kept.cache_clear()


def _times(name: str, folder: Path, cold: int, warm: int) -> dict[str, list[float]]:
    import eventtensor as et
    from eventtensor.compiler import run_passes
    from eventtensor.config import Options

    made = importlib.import_module(f"examples.{name}")
    make, options = getattr(made, name), Options(target="cuda")
    took: dict[str, list[float]] = {"prove": [], "cold": [], "warm": []}
    for k in range(cold + warm):
        if k < cold:
            _forget()
            os.environ["ET_CACHE_DIR"] = str(folder / f"{name}{k}")
        spent, kernel = seconds(lambda: et.compile(make(), target="cuda"))
        took["cold" if k < cold else "warm"].append(spent)
        kernel.close()
    for _ in range(warm):
        _forget()
        took["prove"].append(seconds(lambda: run_passes(make(), options))[0])
    return took


def compile_examples(cold: str, warm: str, *names: str) -> dict[str, Any]:
    """One after the other: two compilers at a time take longer than one. NVRTC has a cache of its
    own, which the caller must have switched off."""
    import eventtensor as et
    from examples import row_sum

    if os.environ.get("CUDA_CACHE_DISABLE") != "1":
        raise RuntimeError("a cold compile needs CUDA_CACHE_DISABLE=1")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ET_CACHE_DIR"] = str(Path(folder) / "first")
        et.compile(row_sum.row_sum(), target="cuda").close()  # loads the compiler and the driver
        return {name: _times(name, Path(folder), int(cold), int(warm)) for name in names}


CHILDREN: dict[str, Callable[..., dict[str, Any]]] = {
    "deadlock": deadlock, "load": load, "compile": compile_examples,
}

if __name__ == "__main__":
    print(json.dumps(CHILDREN[sys.argv[1]](*sys.argv[2:])))
