"""Decisions: which schedule each grid gets and why, groups of push grids, memory."""
