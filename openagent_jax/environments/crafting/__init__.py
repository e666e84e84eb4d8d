"""Crafting worlds: text environments with random graphs of recipes, as arrays.

The idea comes from TextCraft (Prasad et al., arXiv 2311.05772): the agent reads a book
of recipes, takes raw items, and crafts other items from them until it has the goal.
"""
