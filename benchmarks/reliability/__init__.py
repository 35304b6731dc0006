"""What must hold when things go wrong: busy machines, damaged files, hostile clients."""
