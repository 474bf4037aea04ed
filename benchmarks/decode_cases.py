"""What decode.py measures, and the words of its command line that choose among it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.decoder import TEMPERATURE, TOP_P
from benchmarks.kernels import Wanted, for_requests
from benchmarks.measure import RESULTS

PARTS = ("step", "sampled", "prefill", "load", "compile")
MOST = 128  # rows of the kernel that takes prompts


@dataclass(frozen=True)
class Case:
    """A step of `batch` requests after `context` tokens each, and the milliseconds that it must
    and should take at most."""

    model: str
    batch: int
    context: int
    must: float | None = None
    aim: float | None = None
    sampled: bool = False

    @property
    def part(self) -> str:
        return "sampled" if self.sampled else "step"

    def fields(self) -> dict[str, Any]:
        """What tells its rows from others."""
        drawn = {"temperature": TEMPERATURE, "top_p": TOP_P} if self.sampled else {}
        return {"model": self.model, "batch": self.batch, "context": self.context, **drawn}

    def limits(self) -> dict[str, float]:
        both = {"must": self.must, "aim": self.aim}
        return {k: v for k, v in both.items() if v is not None}


@dataclass(frozen=True)
class Prompt:
    """A prompt, and what vLLM 0.26 takes for it and a token (published)."""

    model: str
    vllm_ms: float
    length: int = 960


CASES = (
    Case("llama-3.2-1b", 1, 128, 0.68, 0.60),
    Case("llama-3.2-1b", 1, 1024, 0.70, 0.62),
    Case("llama-3.2-1b", 16, 1024, 0.92, 0.76),
    Case("llama-3.2-1b", 64, 1024, 1.45, 1.2),
    Case("qwen3-0.6b", 1, 128, 0.52, 0.40),
    Case("qwen3-0.6b", 1, 960, 0.55, 0.42),
    Case("qwen3-8b", 1, 1024, 3.75, 3.50),
    Case("qwen3-8b", 8, 1024, 4.15, 3.85),
    Case("qwen3-8b", 16, 1024, 4.5, 4.15),
    Case("qwen3-8b", 64, 1024, 6.7, 6.0),
    Case("llama-3.2-1b", 1, 1024, sampled=True),
    Case("llama-3.2-1b", 64, 1024, sampled=True),
)
PROMPTS = (Prompt("llama-3.2-1b", 16.0), Prompt("qwen3-8b", 43.0))
COMPILED = tuple(w for m in ("llama-3.2-1b", "qwen3-8b")
                 for w in (Wanted(m, 1), for_requests(m, 2), Wanted(m, MOST)))
LOADED = tuple(Wanted(m, MOST) for m in ("llama-3.2-1b", "qwen3-8b"))


@dataclass(frozen=True)
class Chosen:
    """What a run measures. `tokens` are the rows that kernels are compiled for, 0 for as many as
    the case has; empty if nothing was said: then the one that a Runner takes."""

    parts: tuple[str, ...] = PARTS
    models: tuple[str, ...] = ()
    batches: tuple[int, ...] = ()
    tokens: tuple[int, ...] = ()
    first_only: bool = False

    def _has(self, part: str, model: str, batch: int = 1) -> bool:
        return (part in self.parts and (not self.models or model in self.models)
                and (not self.batches or batch in self.batches))

    def cases(self) -> tuple[Case, ...]:
        found = tuple(c for c in CASES if self._has(c.part, c.model, c.batch))
        return found[:1] if self.first_only else found

    def prompts(self) -> tuple[Prompt, ...]:
        return tuple(p for p in PROMPTS if self._has("prefill", p.model))

    def compiled(self) -> tuple[Wanted, ...]:
        return tuple(w for w in COMPILED if self._has("compile", w.model))

    def loaded(self) -> tuple[Wanted, ...]:
        return tuple(w for w in LOADED if self._has("load", w.model))

    def models_of_all(self) -> tuple[str, ...]:
        """Those whose weights a run needs, in order."""
        all_of_them = (*self.cases(), *self.prompts(), *self.loaded())
        return tuple(dict.fromkeys(x.model for x in all_of_them))

    def kernels_of(self, case: Case) -> tuple[Wanted, ...]:
        """Kernels for fewer rows than the case has are left out."""
        if not self.tokens:
            return (for_requests(case.model, case.batch, case.sampled),)
        sizes = dict.fromkeys(t or case.batch for t in self.tokens)
        return tuple(Wanted(case.model, t, case.sampled) for t in sizes if t >= case.batch)

    def kernels_of_prompt(self, prompt: Prompt) -> tuple[Wanted, ...]:
        """By chunks as large as the kernel takes."""
        sizes = tuple(t for t in self.tokens if t > 1) or (MOST,)
        return tuple(Wanted(prompt.model, t) for t in sizes)

    def kernels(self) -> tuple[Wanted, ...]:
        """All that a run loads."""
        found = [w for c in self.cases() for w in self.kernels_of(c)]
        found += [w for p in self.prompts() for w in self.kernels_of_prompt(p)]
        return tuple(dict.fromkeys([*found, *self.loaded()]))


def _tokens(text: str) -> int:
    return 0 if text == "batch" else int(text)


def parse(words: Sequence[str] | None, describe: str | None) -> argparse.Namespace:
    """Beside the options, `chosen` is what they choose."""
    known = tuple(dict.fromkeys(c.model for c in CASES))
    parser = argparse.ArgumentParser(description=describe)
    add = parser.add_argument
    add("--quick", action="store_true", help="few samples: does it run at all?")
    add("--out", type=Path, default=RESULTS, help="folder of the JSON files")
    add("--only", action="append", choices=PARTS, help="may be repeated, as the next ones")
    add("--model", action="append", choices=known)
    add("--batch", action="append", type=int, choices=sorted({c.batch for c in CASES}))
    add("--tokens", action="append", type=_tokens,
        help="rows that a kernel is compiled for: a number, or 'batch' (default: 1, or 128)")
    add("--no-peers", action="store_true", help="nothing of PyTorch")
    add("--peer-limit", type=int, default=60, help="seconds that torch.compile may take")
    add("--tune-peers", action="store_true", help="inductor searches shapes, for batch 1")
    add("--jobs", type=int, default=os.cpu_count() or 1, help="compilers at a time")
    args = parser.parse_args(words)
    plain = args.quick and not (args.only or args.model or args.batch)
    args.chosen = Chosen(
        ("step",) if plain else tuple(args.only or PARTS), tuple(args.model or ()),
        tuple(args.batch or ()), tuple(args.tokens or ()), plain,
    )
    return args
