"""OpenAI's responses: a newer API for the same chats, whose answers may be stored."""
