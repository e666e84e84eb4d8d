"""Tool worlds: typed tools, requests, faults, and feedback, all of them arrays."""
