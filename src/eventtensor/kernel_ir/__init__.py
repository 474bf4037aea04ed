"""Kernel IR: typed statements of a kernel, their effects, text form and verifier (docs/design)."""
