"""Anthropic's messages: chats as blocks of text, thinking and tool use."""
