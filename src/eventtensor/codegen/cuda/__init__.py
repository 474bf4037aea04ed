"""Generated CUDA: one persistent cooperative kernel for a plan; `generate` gives its text and what
the host has to provide."""

from .kernel import KERNEL, THREADS, CudaSource, generate

__all__ = ["KERNEL", "THREADS", "CudaSource", "generate"]
