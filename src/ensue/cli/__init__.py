"""Verbs in a terminal: parse, call, print."""
