"""Verbs over HTTP (to come)."""
