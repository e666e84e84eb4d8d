"""What speaks to other libraries, on the host; each needs an extra."""
