"""Prints what lm-eval finds for each sample: score_tasks.py URL TOKENIZER_FOLDER."""

from __future__ import annotations

import json
import sys

from local_tasks import evaluate

URL, FOLDER = sys.argv[1:3]
MAX_LENGTH = 256
WAYS = {
    "remote": {"tokenizer_backend": "remote"},
    "huggingface": {"tokenizer_backend": "huggingface", "tokenizer": FOLDER},
    "texts": {"tokenizer_backend": "remote", "tokenized_requests": False},
    "batches": {"tokenizer_backend": "remote", "batch_size": 7, "num_concurrent": 2},
}


def scores(task: str, **options):
    """In the order of the data."""
    _, samples = evaluate(task, "local-completions", URL, max_length=MAX_LENGTH, **options)
    return [s["filtered_resps"] for s in sorted(samples, key=lambda s: s["doc_id"])]


print("\n" + json.dumps({
    name: {task: scores(task, **options) for task in ("local_choice", "local_rolling")}
    for name, options in WAYS.items()}))
