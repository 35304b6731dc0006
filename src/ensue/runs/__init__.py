"""One file a kind of run: what people can ask of it."""
