"""`eventtensor bench`: how fast a model answers, in one process or behind a server."""
