"""OpenAI's chat completions: path, body and writer."""
