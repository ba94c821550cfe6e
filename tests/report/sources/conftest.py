"""A stand-in for wandb's service, for the tests of this folder."""

from tests.wandb_server.fixtures import running_server, server  # noqa: F401
