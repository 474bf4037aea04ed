"""Model families: their configs, blocks and tasks, and the step of a model as one program."""
