"""Small chat templates that treat tools, calls, results and reasoning as those of known models do,
and the tokenizers that go with them."""

from __future__ import annotations

import tokenizers

from eventtensor.llm.text.tokenizer import Tokenizer
from tests.engine.tiny_chat import _tokenizer

QWEN3 = """\
{%- if tools %}
{{- '<|im_start|>system\\n' }}
{%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{% endif %}
{{- 'Tools:\\n<tools>' }}{% for tool in tools %}{{- '\\n' + (tool | tojson) }}{% endfor %}
{{- '\\n</tools>\\nCall one within <tool_call></tool_call>.<|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for m in messages %}
{%- if m.role == 'user' or (m.role == 'system' and not loop.first) %}
{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}
{%- elif m.role == 'assistant' %}
{%- set content = m.content.split('</think>')[-1].lstrip('\\n') %}
{{- '<|im_start|>assistant\\n' + content }}
{%- for call in m.tool_calls or [] %}
{%- if (loop.first and content) or not loop.first %}{{- '\\n' }}{% endif %}
{%- set call = call.function if call.function else call %}
{{- '<tool_call>\\n{"name": "' + call.name + '", "arguments": ' }}
{%- if call.arguments is string %}{{- call.arguments }}
{%- else %}{{- call.arguments | tojson }}{% endif %}
{{- '}\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- elif m.role == 'tool' %}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{% endif %}
{{- '\\n<tool_response>\\n' + m.content + '\\n</tool_response>' }}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\\n' }}{% endif %}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}
{{- '<think>\\n\\n</think>\\n\\n' }}
{%- endif %}
{%- endif %}"""

THINKER = QWEN3[: QWEN3.rindex("{%- if enable_thinking")] + "{{- '<think>\\n' }}{% endif %}"

LLAMA_3_2 = """\
{{- bos_token }}
{%- if not tools is defined %}{%- set tools = none %}{% endif %}
{%- if messages[0]['role'] == 'system' %}
{%- set system = messages[0]['content'] | trim %}{%- set messages = messages[1:] %}
{%- else %}{%- set system = '' %}{% endif %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' }}
{%- if tools is not none %}{{- 'Environment: ipython\\n' }}{% endif %}
{{- system + '<|eot_id|>' }}
{%- if tools is not none %}
{%- if messages | length == 0 %}
{{- raise_exception('no first user message for the tools') }}
{%- endif %}
{{- '<|start_header_id|>user<|end_header_id|>\\n\\n' }}
{{- 'Answer {"name": function name, "parameters": dictionary of its arguments}.\\n\\n' }}
{%- for t in tools %}{{- t | tojson(indent=4) }}{{- '\\n\\n' }}{% endfor %}
{{- messages[0]['content'] | trim + '<|eot_id|>' }}
{%- set messages = messages[1:] %}
{%- endif %}
{%- for m in messages %}
{%- if not (m.role == 'ipython' or m.role == 'tool' or 'tool_calls' in m) %}
{{- '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content | trim + '<|eot_id|>' }}
{%- elif 'tool_calls' in m %}
{%- if m.tool_calls | length != 1 %}
{{- raise_exception('only one call in a message') }}
{%- endif %}
{%- set call = m.tool_calls[0].function %}
{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{{- '{"name": "' + call.name + '", "parameters": ' }}{{- call.arguments | tojson }}{{- '}' }}
{{- '<|eot_id|>' }}
{%- else %}
{{- '<|start_header_id|>ipython<|end_header_id|>\\n\\n' }}
{%- if m.content is mapping or m.content is iterable %}{{- m.content | tojson }}
{%- else %}{{- m.content }}{% endif %}
{{- '<|eot_id|>' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}"""

SMOLLM2 = """\
{%- if messages[0]['role'] != 'system' %}
{{- '<|im_start|>system\\nBe SmolLM2<|im_end|>\\n' }}
{%- endif %}
{%- for m in messages %}
{{- '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}"""

CONTROL = ("<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
           "<|python_tag|>")


def byte_tokenizer(template: str | None) -> Tokenizer:
    """A token for each byte, and the control tokens of the templates."""
    core: tokenizers.Tokenizer = _tokenizer()
    core.add_special_tokens(list(CONTROL))
    return Tokenizer(core, eos=(1,), special={"bos_token": "<|begin|>"}, template=template)
