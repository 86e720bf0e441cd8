"""Why the numbers are what they are, and the line to change: what is known -> findings."""
