"""Policies: a Llama decoder, Hugging Face's file format, decoding with a KV cache."""
