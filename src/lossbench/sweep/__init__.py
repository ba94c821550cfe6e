"""Many runs: what is expected, what is done, and how the rest is started."""
