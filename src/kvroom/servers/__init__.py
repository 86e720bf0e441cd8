"""Programs that run inside a contender's own environment. Nothing in kvroom imports them."""
