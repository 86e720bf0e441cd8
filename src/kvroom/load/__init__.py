"""The load client: prompts of exact length, a loop that only records, and a parser after it."""
