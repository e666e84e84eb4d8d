"""Our policies behind OpenAI's protocol."""
