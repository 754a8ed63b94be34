"""The GGUF file."""
