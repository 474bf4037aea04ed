"""Tool-call syntaxes: one file for each, and what they share."""
