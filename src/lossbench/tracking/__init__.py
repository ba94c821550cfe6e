"""What a run leaves behind: its own record on disk, and a wandb run that mirrors it."""
