"""From run records to tables, figures and one page: collect -> statistics -> writers.

`build(paths, out)` is the whole job; `assemble(paths)` stops before anything is written. Nothing here imports torch,
and everything heavier than the standard library is imported where it is used, so that a report starts at once.

New files join by themselves: a module in `sources/` (where runs come from), `writers/` (an output format) or
`figures/` (a figure of the page) is found by its name.
"""

from lossbench.report.build import Report, assemble, build
from lossbench.report.choices import Choices

__all__ = ["Choices", "Report", "assemble", "build"]
