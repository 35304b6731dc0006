"""Fast CPU implementations of operations, each beside the reference it is tested against."""
