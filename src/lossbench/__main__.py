"""`python -m lossbench` is the `lossbench` command."""

from lossbench.cli import main

main()
