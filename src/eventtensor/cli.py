"""The command `eventtensor`, also as `python -m eventtensor.cli`; what it does is in llm/cli."""

from .llm.cli import main

if __name__ == "__main__":
    main()
