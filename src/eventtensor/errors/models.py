"""ET4xx: models, their files, tokenizers and chats."""

from __future__ import annotations

from .base import EventTensorError


class UnknownModel(EventTensorError):
    code, title = "ET400", "a model that cannot be found"
    default_hint = "smollm2, random:NAME, a Hugging Face folder, or a GGUF file"


class MissingPackage(EventTensorError):
    code, title = "ET401", "a package that is needed and not installed"
    default_hint = "pip install 'eventtensor[llm]'"


class BadModelFile(EventTensorError):
    code, title = "ET402", "a file of a model that cannot be read"
    default_hint = "download it again, whole"


class BadModelConfig(EventTensorError):
    code, title = "ET403", "a key of a model's config that is missing or holds nonsense"
    default_hint = "compare config.json, or the GGUF metadata, with the published model"


class UnsupportedModel(EventTensorError):
    code, title = "ET404", "a model with an architecture or option that is not supported"
    default_hint = "dense Llama and Qwen3 models are, and Qwen3-MoE; nothing is skipped silently"


class MissingTensor(EventTensorError):
    code, title = "ET405", "a checkpoint without a tensor that its config asks for"
    default_hint = "download all shards; the config must be that of this checkpoint"


class UnexpectedTensor(EventTensorError):
    code, title = "ET406", "a checkpoint with a tensor that the model has no use for"
    default_hint = "the model has a part that is not supported, or the config is of another one"


class WrongTensorShape(EventTensorError):
    code, title = "ET407", "a tensor of a checkpoint with the wrong shape"
    default_hint = "the config must be that of this checkpoint"


class UnsupportedTensorType(EventTensorError):
    code, title = "ET408", "a tensor of a checkpoint with a type that cannot be read"
    default_hint = "convert the file to bf16, f16 or f32, or to GGUF Q4_0, Q4_1 or Q8_0"


class BadPacking(EventTensorError):
    code, title = "ET409", "a matrix whose size does not fit the packed layout"
    default_hint = "rows come in panels of 16, columns in multiples of 8"


class UnsupportedTokenizer(EventTensorError):
    code, title = "ET410", "a tokenizer of a kind that is not supported"
    default_hint = "use a folder with tokenizer.json, or a GGUF file with byte-level BPE"


class BadChat(EventTensorError):
    code, title = "ET411", "a chat that its template cannot render"
    default_hint = "messages are dicts with role and content; base models have no chat template"


class BadWeightsCache(EventTensorError):
    code, title = "ET412", "packed weights on disk that are not what was written"
    default_hint = "the disk may be failing; set ET_CACHE_DIR to a folder on another one"
