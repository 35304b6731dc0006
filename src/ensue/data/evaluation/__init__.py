"""Tasks that a language model is evaluated on: files, built-in tasks, and k-shot prompts."""
