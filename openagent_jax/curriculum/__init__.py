"""Which tasks come next: how they are drawn and perturbed, and mixes of them."""
