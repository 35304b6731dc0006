"""Basics for all packages: settings, errors, events, seeds, atomic files and lazy tables."""
