"""Formats of others, read on the host; what they need are optional extras."""
