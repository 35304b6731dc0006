"""One file a system, its equations first."""
