"""Passes over kernel IR: one file a pass. They ask effects and uniformity, never a name."""
