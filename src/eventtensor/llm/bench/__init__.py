"""`eventtensor bench`: latency and throughput of a model, in one process or behind a server."""
