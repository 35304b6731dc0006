"""Sampling and search over any model that takes a state and gives one back."""
