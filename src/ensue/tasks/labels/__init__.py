"""Labelling tasks: what they share, and each with its reader, its rows, its predictions and its measure."""
