"""Generated CUDA: one persistent cooperative kernel for a plan; `generate` gives its text and what
the host has to provide."""

from .kernel import KERNEL, CudaSource, generate

__all__ = ["KERNEL", "CudaSource", "generate"]
