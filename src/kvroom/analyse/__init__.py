"""A Run -> numbers: the metrics, whether our client can be believed, who is ahead."""
