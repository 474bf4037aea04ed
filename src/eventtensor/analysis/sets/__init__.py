"""Between programs and integer sets: the only modules that build isl text or read isl ASTs."""
