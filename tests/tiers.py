"""Which tests run when: `fast` beside every edit, `core` beside every change, `full` before a
release. A tier contains those before it.

A file has the tier of its folder, or one of its own. A test that costs more than its file has a
mark (`@pytest.mark.core`).
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

TIERS = ("fast", "core", "full")
HERE = Path(__file__).parent

# fast: no compiler, no process, no long search.
FOLDERS = {
    "backend": "core",
    "bench": "core",
    "clients": "core",
    "emulator": "full",
    "engine": "core",
    "examples": "core",
    "faults": "full",
    "fuzz": "core",
    "gpu": "core",
    "kernel_ir": "fast",
    "models": "core",
    "project": "core",
    "property": "full",
    "serve": "core",
    "unit": "fast",
}
FILES = {
    "backend/test_arguments.py": "fast",
    "backend/test_build.py": "fast",
    "backend/test_cuda_arrays.py": "fast",
    "backend/test_cuda_emulated.py": "full",
    "backend/test_folded_stores.py": "full",
    "backend/test_gemm_strategies.py": "full",
    "backend/test_lent.py": "full",
    "backend/test_panel_products.py": "full",
    "backend/test_product_runs.py": "full",
    "backend/test_products.py": "full",
    "backend/test_races.py": "full",
    "backend/test_wide_products.py": "full",
    "engine/test_engine_core.py": "fast",
    "engine/test_sampling_params.py": "fast",
    "engine/test_detokenizer.py": "fast",
    "examples/test_chain.py": "full",
    "examples/test_moe_events.py": "full",
    "examples/test_races.py": "full",
    "models/test_attention_items.py": "full",
    "models/test_attention_decode_batch.py": "full",
    "models/test_attention_decode_single.py": "full",
    "models/test_decode_steps.py": "full",
    "models/test_moe_block.py": "full",
    "models/test_small_batches.py": "full",
    "models/test_llama.py": "full",
    "models/test_qwen3_moe.py": "full",
    "models/test_runner.py": "full",
    "models/test_runner_kernels.py": "full",
    "models/test_sampler.py": "full",
    "models/test_moe_tile_forwarding.py": "full",
    "project/test_documents.py": "fast",
    "property/test_interval.py": "core",
    "serve/test_soak.py": "full",
    "unit/test_decode_bench.py": "core",
    "unit/test_guide.py": "core",
    "unit/test_moe_bench.py": "core",
    "unit/test_ops_table.py": "core",
    "unit/test_scratch_reuse.py": "core",
}


def tier_of_file(path: Path) -> str:
    """Of a file under tests/."""
    name = PurePosixPath(path.relative_to(HERE).as_posix())
    if str(name) in FILES:
        return FILES[str(name)]
    tier = FOLDERS.get(name.parts[0], "core")
    return "core" if tier == "fast" and "fuzz" in name.stem else tier  # takes ET_FUZZ_SECONDS


def within(tier: str, asked: str) -> bool:
    return TIERS.index(tier) <= TIERS.index(asked)


def tier_of(path: Path, marks: set[str]) -> str:
    """Of a test: a mark may raise it above its file."""
    return max([tier_of_file(path), *marks & set(TIERS)], key=TIERS.index)
