"""What is measured, and how; each file is a script."""
