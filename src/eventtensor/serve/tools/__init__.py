"""How models call tools: one file for each syntax of calls."""
