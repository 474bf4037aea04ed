"""SmolLM2 on all cores of a CPU, batch 1: one kernel a token, beside transformers eager with the
same weights, dtype and threads, and beside what memory gives. The two take turns in one run.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import RESULTS, Bench, print_heads, said, torch
from eventtensor import LLM
from eventtensor.llm.runner.bandwidth import measure_bandwidth
from eventtensor.llm.runner.runner import Runner, StepToken
from eventtensor.llm.weights.checkpoint import file_names
from eventtensor.llm.weights.formats.hf_checkpoint import _ENDS, _LAYER
from eventtensor.llm.weights.model_source import Model, open_model

PROMPT = "The sea is"
TOKENS, SAMPLES = 128, 5
PEER_S = 15  # a peer that is slower than some tokens a second gets no further than this takes
DTYPES = {"f32": "float32", "bf16": "bfloat16"}

Run = Callable[[int], tuple[list[int], float]]  # so many tokens; seconds of a step after the first


def cores() -> int:
    return len(os.sched_getaffinity(0))


def machine() -> dict[str, Any]:
    model = [s for s in said("lscpu").splitlines() if s.startswith("Model name")]
    name = model[0].partition(":")[2].strip() if model else platform.machine()
    versions = {"torch": torch().__version__, "transformers": _transformers().__version__}
    return {"gpu": "none", "cpu": f"{name}, {cores()} cores", "versions": versions}


def _transformers() -> Any:
    import transformers

    return transformers


# ---- ours --------------------------------------------------------------------------------------


def ours(runner: Runner, prompt: list[int]) -> Run:
    """Greedy steps, whatever the tokens are: an end token does not end it."""
    table = [list(range(runner.pages))]

    def run(tokens: int) -> tuple[list[int], float]:
        rows = [StepToken(0, t, k) for k, t in enumerate(prompt)]
        found = [int(runner.step([rows[-1], *rows[:-1]], table, logits=0).tokens[0])]
        started = time.perf_counter()
        for k in range(len(prompt), len(prompt) + tokens - 1):
            step = runner.step([StepToken(0, found[-1], k)], table, logits=0)
            found.append(int(step.tokens[0]))
        return found, (time.perf_counter() - started) / (tokens - 1)

    return run


# ---- transformers ------------------------------------------------------------------------------


def reference(model: Model, dtype: str) -> Any:
    c, get, t = model.config, model.checkpoint.tensor, torch()
    hf = _transformers()
    with t.device("meta"):
        made = hf.LlamaForCausalLM(hf.LlamaConfig(
            vocab_size=c.vocab, hidden_size=c.hidden, intermediate_size=c.intermediate,
            num_hidden_layers=c.layers, num_attention_heads=c.heads,
            num_key_value_heads=c.kv_heads, rms_norm_eps=c.norm_eps, tie_word_embeddings=True,
            rope_parameters={"rope_type": "default", "rope_theta": c.rope_theta},
            max_position_embeddings=c.max_position, attn_implementation="eager",
        ))
    kind, names = getattr(t, DTYPES[dtype]), file_names(c, _ENDS, _LAYER)
    weights = {
        key: t.from_numpy(np.array(get(name), np.float32)).to(kind) for name, key in names.items()
    }
    made.load_state_dict(weights | {"lm_head.weight": weights[names["embed"]]}, assign=True)
    made.model.rotary_emb = type(made.model.rotary_emb)(made.config)
    return made.eval()


def theirs(model: Any, prompt: list[int]) -> Run:
    """Its forward pass with its cache, without what `generate` does around it."""
    t = torch()

    def run(tokens: int) -> tuple[list[int], float]:
        with t.inference_mode():
            out = model(t.tensor([prompt]), use_cache=True, logits_to_keep=1)
            found = [int(out.logits[0, -1].argmax())]
            started = time.perf_counter()
            while len(found) < tokens and time.perf_counter() - started < PEER_S:
                out = model(t.tensor([found[-1:]]), past_key_values=out.past_key_values)
                found.append(int(out.logits[0, -1].argmax()))
            return found, (time.perf_counter() - started) / (len(found) - 1)

    return run


# ---- both --------------------------------------------------------------------------------------


@dataclass
class Turns:
    """Tokens a second of both, bytes a second of memory, sample by sample; and how many of the
    peer's tokens are ours, up to the first that is not."""

    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)
    same_tokens: int = 0
    peer_tokens: int = 0


def in_turns(first: Run, second: Run, tokens: int, samples: int) -> Turns:
    first(4), second(4)
    found = Turns()
    for _ in range(samples):
        (x, one), (y, two) = first(tokens), second(tokens)
        found.ours.append(1 / one)
        found.theirs.append(1 / two)
        found.memory.append(measure_bandwidth("cpu").rate)
        found.peer_tokens = len(y)
        found.same_tokens = next((k for k, t in enumerate(y) if t != x[k]), len(y))
    return found


def measure(bench: Bench, model: Model, dtype: str, tokens: int) -> None:
    assert model.tokenizer is not None
    prompt = model.tokenizer.encode(PROMPT)
    context = len(prompt) + tokens
    with LLM(model, target="cpu", dtype=dtype, max_model_len=context, max_num_seqs=1) as llm:
        runner = llm.engine.runner  # the engine has nothing to do
        run, peer = ours(runner, prompt), theirs(reference(model, dtype), prompt)
        found = in_turns(run, peer, tokens, 2 if bench.quick else SAMPLES)
        each = runner.bytes_read([StepToken(0, 0, context - tokens // 2)])
    memory = max(found.memory)  # others who use the machine make it less, nothing makes it more
    floor, other = memory / each, float(np.median(found.theirs))
    about = {"model": "smollm2", "batch": 1, "context": context, "tokens": tokens, "dtype": dtype,
             "floor": round(floor, 2), "read_gb_s": round(memory / 1e9, 2)}

    def add(engine: str, rates: list[float], **more: Any) -> None:
        middle = float(np.median(rates))
        bench.add("decode", rates, "tokens/s", **about, engine=engine, **more,
                  percent=round(100 * middle / floor, 1), times=round(middle / other, 2))

    add("one kernel", found.ours, peers={"transformers eager": round(other, 3)},
        same_tokens=found.same_tokens, peer_tokens=found.peer_tokens)
    add("transformers eager", found.theirs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few samples: does it run at all?")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the JSON files")
    args = parser.parse_args()
    torch().set_num_threads(cores())
    bench = Bench("cpu", args.out, args.quick, machine())
    print(bench.context["cpu"], bench.context["versions"])
    print_heads()
    model = open_model("smollm2")
    for dtype in DTYPES:
        measure(bench, model, dtype, 16 if args.quick else TOKENS)
    sys.exit(any("error" in row for row in bench.rows))


if __name__ == "__main__":
    main()
