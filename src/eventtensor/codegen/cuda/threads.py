"""The shape of a block: threads that run tasks, and one warp that loads."""

THREADS = 256
WARPS = THREADS // 32
LOADER = 32
