"""A Run -> something to read: a terminal table, Markdown, JSON, and the live view while it runs."""
