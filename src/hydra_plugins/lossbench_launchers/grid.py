"""`hydra/sweeper=grid`: the runs of a study's file, of the command line, or of both."""

from __future__ import annotations

from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from hydra_plugins.lossbench_launchers._sweeper import PreparedSweeper

SCHEMA = {
    "_target_": "hydra_plugins.lossbench_launchers.grid.GridSweeper",
    "params": None,  # axes in the spelling of Hydra's own sweeper: {seed: "0,1,2"}
}
ConfigStore.instance().store(group="hydra/sweeper", name="grid", node=SCHEMA, provider="lossbench")


class GridSweeper(PreparedSweeper):
    """Expands `sweep` and the command line into runs, and hands all of them to the launcher at once.

    Unlike Hydra's own sweeper it composes no run by itself: the launcher composes all of them before the first starts.
    """

    def __init__(self, params: dict[str, Any] | None = None) -> None:
        super().__init__()
        self.params = dict(params or {})

    def sweep(self, arguments: list[str]) -> Any:
        from lossbench.errors import ConfigError
        from lossbench.sweep.study import expand, parse_sweep

        assert self.launcher is not None and self.config is not None and self.hydra_context is not None
        block = OmegaConf.to_container(self.config.sweep, resolve=True) if self.config.get("sweep") else {}
        given: dict[str, list[str]] = {}
        parser = OverridesParser.create(config_loader=self.hydra_context.config_loader)
        for override in parser.parse_overrides([*(f"{key}={value}" for key, value in self.params.items()), *arguments]):
            if override.is_sweep_override() and not override.is_discrete_sweep():
                raise ConfigError(f"{override.input_line}: only lists, range(), glob() and choice() make a grid.")
            if override.is_delete():
                key, values = str(override.input_line), []
            elif override.is_sweep_override():
                key, values = override.get_key_element(), list(override.sweep_string_iterator())
            else:
                key, values = override.get_key_element(), [override.get_value_element_as_str()]
            if not key.startswith("sweep."):  # switches of the sweep itself
                given[key] = values
        deletions = [key for key, values in given.items() if not values]
        axes = {key: values for key, values in given.items() if values}
        runs = [[*run, *deletions] for run in expand(parse_sweep(block), axes)]  # type: ignore[arg-type]
        return self.launcher.launch(runs, initial_job_idx=0)
