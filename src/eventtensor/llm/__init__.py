"""Language models: programs made of ops, their weights, an engine, a server and the command."""
