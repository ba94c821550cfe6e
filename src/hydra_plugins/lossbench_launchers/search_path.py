"""A folder `conf` where the command runs adds to lossbench's own configurations: a loss, dataset or model of one's own.

It comes last, so that a stranger's `conf/config.yaml` changes nothing.
"""

from __future__ import annotations

from pathlib import Path

from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.search_path_plugin import SearchPathPlugin


class LocalConfigurations(SearchPathPlugin):
    """Appends ./conf to the search path of lossbench's application."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        local = Path.cwd() / "conf"
        if not local.is_dir():
            return
        primary = next((entry.path for entry in search_path.get_path() if entry.provider == "main"), None) or ""
        ours = Path(primary.removeprefix("file://"))
        is_ours = (
            "lossbench" in ours.parts or (ours.parent / "src" / "lossbench").is_dir()
        )  # plugins are found for any app
        if is_ours and ours.resolve() != local.resolve():
            search_path.append("lossbench-local", f"file://{local}")
