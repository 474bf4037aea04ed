"""Machines as data: what each can do, and what was measured on it.

A machine is one file. Nothing here decides: the passes and back ends read these values. How to
find the GPUs of this computer is in runtime/cuda.
"""
