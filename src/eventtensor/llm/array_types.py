"""Types that all of llm/ says the same way: arrays, their shapes, and reports of progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Shape = tuple[int, ...]
Progress = Callable[[str, int, int], None]  # name of the array, bytes done, bytes in all
