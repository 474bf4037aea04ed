"""Tests of the engine, and what other tests take of them. A package, or the benchmark of this name
would be taken for it where both are looked for."""
