"""Scripts for those who work on this tree."""
