"""Goals sampled from the typed tools of a domain, and requests for them."""
