"""Causal language models and their tokenizers."""
