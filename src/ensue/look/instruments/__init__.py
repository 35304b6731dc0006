"""Instruments of the lectures: they compute what a view or a test shows, from plain models and tensors."""
