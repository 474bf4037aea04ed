"""Readers of checkpoints: Hugging Face folders, GGUF files, and a random generator."""
