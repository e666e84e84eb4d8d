"""Serve a policy behind OpenAI's chat protocol."""
