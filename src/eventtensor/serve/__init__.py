"""The engine over HTTP, in OpenAI's protocol. Its packages come with eventtensor[llm]."""
