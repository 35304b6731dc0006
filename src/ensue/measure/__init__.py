"""What figures mean: perplexity, bits per byte, BLEU, F1, exact match, correlation, cost."""
