"""A stand-in for wandb's service on 127.0.0.1, for tests that run the real wandb client online.

It keeps runs in memory, answers the GraphQL operations and file streams that the client was seen to use, writes down
every request, and misbehaves on demand. Written from observed requests; nothing of wandb's own server is in it.
"""

from tests.wandb_server.server import WandbServer
from tests.wandb_server.store import StoredRun

__all__ = ["StoredRun", "WandbServer"]
