"""Policies: a Llama decoder, its Hugging Face file format, decoding with a cache."""
