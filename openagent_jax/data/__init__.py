"""Stored demonstrations: made (`demonstrations`), stored with TFDS (`store`) and read
with grain for SFT (`feed`). The last two need the optional dependencies `data`."""
