"""OpenAI's completions: an answer goes on with a prompt."""
