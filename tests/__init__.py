"""The tests: a folder for each part of the package, and `support` for what they share."""
