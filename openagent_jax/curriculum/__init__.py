"""Curricula: how the tasks of each step are sampled, perturbed and mixed."""
