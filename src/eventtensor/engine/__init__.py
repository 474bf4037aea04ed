"""Many requests at a time over one compiled model: pages of the cache, scheduling, loop, text."""
