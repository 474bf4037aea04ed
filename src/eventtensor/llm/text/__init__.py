"""Tokenizers and chat templates of models."""
