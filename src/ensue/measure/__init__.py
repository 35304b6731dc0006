"""What figures mean: perplexity, bits per byte, cost."""
