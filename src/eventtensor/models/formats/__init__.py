"""Where weights come from: Hugging Face folders, GGUF files, or a random generator."""
