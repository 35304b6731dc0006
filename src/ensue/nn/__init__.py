"""Layers that take a state and give one back; nothing here knows of data or files."""
