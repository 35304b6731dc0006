"""GGUF, the file format of llama.cpp: metadata, a tokenizer and (quantised) tensors in one file."""
