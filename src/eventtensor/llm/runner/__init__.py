"""Runs the steps of one model: its kernels, its memory, and the arrays of a batch."""
