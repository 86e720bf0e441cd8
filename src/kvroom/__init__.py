"""Which LLM serving engine, with which settings, is best for your model, card and load, and why."""

__version__ = "0.1.0"
