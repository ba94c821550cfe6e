"""What tuning found, as a table for the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lossbench.sweep.tune import Budget, Trial, Tuning


def show(tunings: Sequence[Tuning], budget: Budget, seeds: Sequence[int | str], console: Console) -> None:
    """A line for every loss: its trials, its default and its best value on validation, and the best setting."""
    console.print(table(tunings, budget), highlight=False)
    console.print(
        f"The value is that on validation, with seed {budget.seed}; the best of {budget.n_trials} looks better than it "
        f"is. The report compares the settings with seed {', '.join(map(str, seeds))}.",
        highlight=False,
        style="dim",
    )


def table(tunings: Sequence[Tuning], budget: Budget) -> Table:
    """Searches that are not complete show what they search in place of a best setting; what is tuned by itself besides
    losses (models, a list of values of the command line) has a column."""
    cells = [" ".join(_axes(tuning, tunings)) for tuning in tunings]
    made = Table(title=f"Tuning by {', '.join(sorted({t.target.name for t in tunings}))}", title_justify="left")
    for column in ("loss", *(("of",) if any(cells) else ()), "trials", "default", "best", "best setting"):
        made.add_column(column, overflow="fold")
    for tuning, cell in zip(tunings, cells, strict=True):
        failed = f" ({tuning.failed} failed)" if tuning.failed else ""
        if len(tuning.trials) < budget.n_trials:
            found = ["", "searched: " + " ".join(dimension.key for dimension in tuning.space)]
        else:
            found = [_value(tuning.best), " ".join(tuning.best.settings) or "the default"]
        default = _value(tuning.trials[0]) if tuning.trials else ""
        row = [cell] if any(cells) else []
        row += [f"{len(tuning.trials)} of {budget.n_trials}{failed}", default, *found]
        made.add_row(tuning.config.loss.name, *map(escape, row))
    return made


def _axes(tuning: Tuning, tunings: Sequence[Tuning]) -> list[str]:
    """The overrides that not all searches have, but the loss."""
    return [
        text
        for text in tuning.overrides
        if not text.startswith("loss=") and not all(text in other.overrides for other in tunings)
    ]


def _value(trial: Trial) -> str:
    return f"{trial.value:.4g}" if math.isfinite(trial.value) else "failed"
