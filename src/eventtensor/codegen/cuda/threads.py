"""The shape of a block: threads that run tasks, a producer warp, activation producers, and
one that notifies for tasks."""

THREADS = 256
WARPS = THREADS // 32
LOADER = 32
BRINGERS = 2  # warps
MESSENGER = 32
