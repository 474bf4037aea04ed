"""Prints kernel IR as C++ and CUDA. Printers decide nothing."""
