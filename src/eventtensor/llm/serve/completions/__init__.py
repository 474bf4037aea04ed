"""OpenAI's completions: an answer continues its prompt."""
