"""OpenAI's responses: a newer API for chats, whose responses may be stored."""
