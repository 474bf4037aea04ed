"""Makes tests/support importable, and fixes what hypothesis draws."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parents[1]))

_CALM = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)
settings.register_profile("quick", derandomize=True, deadline=None, suppress_health_check=_CALM,
                          max_examples=40, database=None)
settings.register_profile("deep", deadline=None, suppress_health_check=_CALM, max_examples=2000,
                          print_blob=True)
settings.load_profile(os.environ.get("ET_HYPOTHESIS", "quick"))
