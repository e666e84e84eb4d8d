"""Crafting worlds: random recipe graphs, played by text, all of them arrays.

The idea is TextCraft's (Prasad et al., arXiv:2311.05772): the agent reads a book of
recipes, takes raw items, crafts others from them, and so reaches a goal item.
"""
