"""Stored demonstrations: made (`demonstrations`), kept as TFDS (`store`), fed to SFT
through grain (`feed`). The last two need the extra `data`."""
