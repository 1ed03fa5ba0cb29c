"""The pure part: what tasks, kinds and steps are and what their endings mean. No I/O, no database."""
