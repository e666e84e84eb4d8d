"""Domain files: their format, their checks, and the goals sampled from them."""
