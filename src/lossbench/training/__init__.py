"""Fine-tune a model under an objective."""
