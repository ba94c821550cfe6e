"""`problems.txt`: everything that went wrong, is absent or was left out, one line each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lossbench.report.records import State

if TYPE_CHECKING:
    from lossbench.report.build import Report


def write(report: Report) -> dict[str, str]:
    """One file; empty where nothing is wrong."""
    lines = [f"{where or 'all'}: {problem}" for where, problem in report.problems]
    for record in report.records:
        where = record.location or record.name or record.id
        if record.error:
            lines.append(f"{where}: {record.state}: {record.error}")
        elif record.state not in (State.FINISHED, State.DUPLICATE):
            lines.append(f"{where}: {record.state}.")
    return {"problems.txt": "".join(f"{line}\n" for line in lines)}
