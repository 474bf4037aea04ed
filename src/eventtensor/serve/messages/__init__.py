"""Anthropic's messages: the same chats, as blocks of text, thinking and uses of tools."""
