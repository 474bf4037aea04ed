"""Programs to read first. Each file runs by itself, too."""
