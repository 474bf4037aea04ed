"""Weights: readers of checkpoints, random weights, packing of matrices, and a cache on disk."""
