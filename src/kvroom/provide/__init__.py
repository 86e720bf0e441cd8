"""Bring what a contender needs: an environment with its engine, and the weights in its format."""
