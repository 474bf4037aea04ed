"""Fixes what hypothesis draws. ET_HYPOTHESIS=deep looks longer, and elsewhere each time."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

_CALM = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)
# Shrinking runs the proof hundreds of times; the text of the program is enough to start from.
settings.register_profile("quick", derandomize=True, deadline=None, suppress_health_check=_CALM,
                          max_examples=20, database=None, phases=(Phase.generate,))
settings.register_profile("deep", deadline=None, suppress_health_check=_CALM, max_examples=1000,
                          print_blob=True)
settings.load_profile(os.environ.get("ET_HYPOTHESIS", "quick"))
