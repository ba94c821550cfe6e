"""A loss that is cross-entropy until something happens to it; jobs of the tests import it from this folder."""

import os
import signal
import sys
import time

from lossbench.losses import TargetLoss


class Mishap(TargetLoss):
    """At its third value `what` happens: nothing, raise, exit, kill, memory. LOSSBENCH_TEST_PAUSE seconds pass at each
    value: they are no parameter, so that a run with pauses is the same run without."""

    def __init__(self, what: str = "nothing") -> None:
        super().__init__()
        self.what, self.count = what, 0

    def value(self, log_p, batch):
        if self.training:
            self.count += 1
            print(f"value {self.count}", flush=True)
            time.sleep(float(os.environ.get("LOSSBENCH_TEST_PAUSE", "0")))
            if self.count == 3:
                self._happen()
        return -log_p

    def _happen(self) -> None:
        if self.what == "raise":
            raise RuntimeError("the third step was one too many")
        if self.what == "exit":
            sys.exit(0)
        if self.what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.what == "memory":
            held = []
            while True:
                held.append(bytearray(os.urandom(1 << 20) * 64))
                time.sleep(0.1)
