"""lossbench: which training loss should I use to fine-tune my language model?

from lossbench import losses                    # the registry; needs torch alone
from lossbench.report import statistics         # needs no torch
"""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("lossbench")
except PackageNotFoundError:  # run from a checkout that was never installed
    __version__ = "0+unknown"
