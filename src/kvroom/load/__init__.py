"""The load client: prompts of exact length, a socket loop that only records, and a parser after it."""
