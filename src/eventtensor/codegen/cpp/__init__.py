"""Generated C++17 for CPU threads: `generate` gives the text of a kernel for a plan."""

from .kernel import Flavour, coordinate_rank, generate

__all__ = ["Flavour", "coordinate_rank", "generate"]
