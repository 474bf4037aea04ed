"""Language models as programs: configs, checkpoints, tokenizers, and the step of a model."""
