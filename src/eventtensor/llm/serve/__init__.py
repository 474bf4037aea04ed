"""The HTTP server: OpenAI's and Anthropic's APIs over the engine. The extra eventtensor[llm]
installs its packages."""
