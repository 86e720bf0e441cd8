"""What a model says of itself: geometry, dtypes, weights by part. The weights are never loaded."""
