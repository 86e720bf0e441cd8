"""How many requests fit, before a GPU is rented: a question -> an answer for each engine."""
