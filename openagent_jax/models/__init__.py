"""Policies: a Llama-shaped decoder, and its Hugging Face file format."""
