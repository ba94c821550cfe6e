"""Hydra launchers of lossbench; Hydra finds them in this namespace package."""
