"""The loop and what hangs on it; nothing here knows a particular model."""
