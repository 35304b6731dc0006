"""The HTTP server: an OpenAI-compatible API, the commands of ensue as an API of their own, and a web page."""
