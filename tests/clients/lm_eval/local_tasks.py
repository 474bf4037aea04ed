"""Tasks of lm-eval whose data are in a local file, so that no site is asked."""

from __future__ import annotations

import json
import os
from pathlib import Path

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager

ROWS = (
    ("The capital of France is", ("Paris", "London", "a kind of cheese"), 0),
    ("Water freezes at zero degrees", ("Newton", "Celsius", "of freedom on a sunny day"), 1),
    ("Grüße aus Köln, 你好! The colour of the sky is", ("blue", "🟩 green", "seven"), 0),
    ("One, two, three,", ("nine", "four", "banana"), 1),
    ("A dog says", ('"meow"', '"woof"', "nothing at all, as it cannot speak"), 1),
)
TEXTS = (
    "The sea is never still. It moves with the wind and with the moon.",
    "Zwei Dinge sind unendlich: das Universum und die menschliche Dummheit. 😊",
    "def add(a, b):\n    return a + b\n" * 30,
)
_TASK = """
task: {name}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
output_type: {kind}
doc_to_text: "{text}"
doc_to_target: "{target}"
num_fewshot: 0
{more}
"""
_GENERATION = """generation_kwargs:
  until: ["\\n"]
  max_gen_toks: 8
  temperature: 0
metric_list:
  - metric: exact_match
"""
_KINDS = {
    "local_choice": ("multiple_choice", "{{question}}", "{{label}}",
                     'doc_to_choice: "{{choices}}"\nmetric_list:\n  - metric: acc\n'),
    "local_rolling": ("loglikelihood_rolling", "", "{{text}}",
                      "metric_list:\n  - metric: word_perplexity\n  - metric: bits_per_byte\n"),
    "local_answers": ("generate_until", "{{question}}", "{{answer}}", _GENERATION),
}


def write_tasks(folder: Path) -> TaskManager:
    """A task for each kind of output, and their data."""
    rows = [{"question": q, "choices": list(c), "label": k, "answer": c[k]} for q, c, k in ROWS]
    data = {"local_choice": rows, "local_rolling": [{"text": t} for t in TEXTS],
            "local_answers": rows}
    for name, (kind, text, target, more) in _KINDS.items():
        path = folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in data[name]))
        (folder / f"{name}.yaml").write_text(_TASK.format(
            name=name, data=path, kind=kind, text=text, target=target, more=more))
    return TaskManager(include_path=str(folder), include_defaults=False)


def evaluate(task: str, kind: str, url: str, **options):
    """What lm-eval finds for a task with a kind of client; `options` as on its command line."""
    manager = write_tasks(Path.cwd())
    chat = "chat" in kind
    path = "/v1/chat/completions" if chat else "/v1/completions"
    found = simple_evaluate(
        model=kind, model_args={"base_url": f"{url}{path}", "model": "smollm2", **options},
        tasks=[task], task_manager=manager, apply_chat_template=chat, log_samples=True,
        bootstrap_iters=0)
    return found["results"][task], found["samples"][task]
