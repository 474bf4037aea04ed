"""What a step has at most. Kernels are compiled for these limits."""

MAX_TOKENS, MAX_REQUESTS = 128, 64
MAX_BIASES = 1024  # tokens of a request whose logits have a bias
