"""Kernels on an NVIDIA GPU: built, launched, saved and loaded."""
