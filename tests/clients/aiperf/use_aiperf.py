"""aiperf, NVIDIA's load generator."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from features import MODEL, SMOLLM2, feature, main
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

# Tokenizers come from the network by default. In this one, each letter is a token.
LETTERS = Tokenizer(
    models.BPE(
        vocab={x: k for k, x in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, merges=[]
    )
)
LETTERS.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
LETTERS.decoder = decoders.ByteLevel()
TOKENIZER = "letters"
PreTrainedTokenizerFast(tokenizer_object=LETTERS).save_pretrained(TOKENIZER)

SMALL = f"""--model {MODEL} --url {SMOLLM2} --tokenizer {TOKENIZER} --request-count 4
    --concurrency 2 --isl 64 --osl 8 --ui simple --workers-max 1"""
SCRAPED = {}


def profile(more: str) -> dict:
    """The numbers of its report, and what it has found in /metrics."""
    folder = tempfile.mkdtemp(dir=".")
    aiperf = str(Path(sys.executable).with_name("aiperf"))
    words = f"{SMALL} {more} --artifact-dir {folder}".split()
    done = subprocess.run([aiperf, "profile", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (report,) = Path(folder).rglob("profile_export_aiperf.json")
    numbers = json.loads(report.read_text())
    assert numbers["request_count"]["avg"] == 4, numbers
    assert not numbers.get("error_summary"), numbers["error_summary"]
    (metrics,) = Path(folder).rglob("server_metrics_export.json")
    return numbers | {"scraped": json.loads(metrics.read_text())["metrics"]}


@feature("chat, streamed")
def chat():
    numbers = profile("--endpoint-type chat --streaming")
    SCRAPED.update(numbers["scraped"])
    assert numbers["time_to_first_token"]["avg"] > 0
    assert numbers["inter_token_latency"]["avg"] > 0


@feature("scrape of /metrics")
def scrape():
    assert any(name.endswith(":generation_tokens") for name in SCRAPED), SCRAPED


@feature("completions, with min_tokens in extra inputs")
def completions():
    numbers = profile(
        "--endpoint-type completions --streaming --use-server-token-count "
        "--extra-inputs min_tokens:8 ignore_eos:true"
    )
    assert numbers["output_sequence_length"]["avg"] == 8


main()
