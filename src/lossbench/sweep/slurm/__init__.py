"""The runs of a sweep as jobs of a SLURM cluster."""
