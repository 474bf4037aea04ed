"""Dense language models as programs: configs, checkpoints, tokenizers, and the decode step."""
