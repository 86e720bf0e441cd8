"""A Run -> numbers: metrics of rounds and levels, whether our client can be believed, who is ahead."""
