"""The Hydra application behind `python train.py` and `lossbench train`.

Hydra composes; `lossbench.run` runs. What the user did wrong is one sentence and exit code 2, what a run failed of is
one sentence and exit code 1, and anything else keeps its traceback. Nothing heavy is imported here, so that `--help`,
`--cfg job` and tab completion answer in about a second.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.errors import ConfigCompositionException, HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lossbench import config, resources
from lossbench.errors import ConfigError, LossbenchError, nearest, refused

if TYPE_CHECKING:
    from lossbench.data.prepare import PreparedFile


ONLY_SWEEPS = ("hydra.launcher.", "hydra.sweeper.", "sweep.")  # keys that one run has no use for


def plain(composed: DictConfig) -> dict:
    """The composed configuration as plain data, without Hydra's own part and the choice of a study."""
    kept = OmegaConf.masked_copy(composed, [str(key) for key in composed if key not in {"hydra", "sweep"}])
    if missing := sorted(OmegaConf.missing_keys(kept)):
        raise ConfigError(" ".join(f"{key} has no value; pass {key}=VALUE." for key in missing))
    found = OmegaConf.to_container(kept, resolve=True)
    assert isinstance(found, dict)
    return found


@hydra.main(version_base="1.3", config_path=str(resources.folder("conf")), config_name="config")
def _application(composed: DictConfig) -> None:
    try:
        _refuse_what_only_sweeps_have(composed)
        from lossbench.run import run

        run(config.parse(plain(composed)))
    except LossbenchError as error:  # caught before Hydra can add its own lines
        sys.exit(_fail(str(error), error.exit_code))


def _refuse_what_only_sweeps_have(composed: DictConfig) -> None:
    """Without -m Hydra would run one job here, and ignore the study and the launcher that were asked for."""
    chosen = HydraConfig.get().runtime.choices
    if (launcher := chosen.get("hydra/launcher")) != "local":
        raise ConfigError(f"hydra/launcher={launcher} starts the runs of a sweep; add -m.")
    if (sweeper := chosen.get("hydra/sweeper")) != "grid":
        raise ConfigError(f"hydra/sweeper={sweeper} chooses the runs of a sweep; add -m.")
    given = [*HydraConfig.get().overrides.hydra, *HydraConfig.get().overrides.task]
    if idle := [text for text in given if text.lstrip("+~").startswith(ONLY_SWEEPS)]:
        raise ConfigError(f"{idle[0]} is for sweeps; add -m.")
    if composed.sweep.grid or composed.sweep.seeds:
        raise ConfigError(f"sweep={chosen.get('sweep')} describes many runs; add -m.")


def compose(*overrides: str) -> config.RunConfig:
    """The configuration that `python train.py OVERRIDES` would run: `compose("loss=focal", "seed=1")`."""
    _register_sweeps()
    with hydra.initialize_config_dir(str(resources.folder("conf")), version_base="1.3"):
        return config.parse(plain(hydra.compose("config", list(overrides))))


def prepare(arguments: Sequence[str]) -> list[PreparedFile]:
    """Write the rows that `lossbench prepare` was asked for: `out=FOLDER`, `positions=seed|exact`, and overrides of the
    configuration. A dataset of the vision-loss paper gets its prompts and splits, unless an override says otherwise."""
    own = dict(argument.split("=", 1) for argument in arguments if argument.startswith(("out=", "positions=")))
    overrides = [argument for argument in arguments if not argument.startswith(("out=", "positions="))]
    if "out" not in own:
        raise ConfigError("Where to? Pass out=FOLDER.")
    from lossbench.data import task as tasks
    from lossbench.data.prepare import positions_of, prepare, seed_overrides
    from lossbench.models.locate import load_tokenizer
    from lossbench.progress import ProgressDisplay

    positions = positions_of(own.get("positions", "seed"))
    try:
        chosen = compose(*overrides)
        if tasks.create(chosen.dataset).prepared_length is not None:
            chosen = compose(*seed_overrides(chosen.dataset.options, positions), *overrides)
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(explain(error)) from None
    if chosen.dataset.corrupt_targets:
        raise ConfigError("Rows are prepared with their own targets: leave dataset.corrupt_targets at 0.")
    task = tasks.create(chosen.dataset)
    task.check_available()
    tokenizer = load_tokenizer(chosen.model)
    with ProgressDisplay("prepare", enabled=chosen.trainer.progress) as progress:
        found = prepare(
            task,
            tokenizer,
            Path(own["out"]).expanduser(),
            length=chosen.dataset.max_length,
            positions=positions,
            limit=chosen.dataset.limit,
            on_progress=progress.on_progress,
        )
    for sentence in task.notes.sentences:
        print(f"data: {sentence}", file=sys.stderr)
    return found


def main() -> None:
    """Run the command line in sys.argv."""
    os.environ["HYDRA_FULL_ERROR"] = "1"  # let exceptions through: `explain` says them better
    _register_sweeps()
    sys.path.insert(0, "")  # a loss of one's own may lie in the present folder
    own = next((k for k, argument in enumerate(sys.argv) if argument.startswith("loss._target_=")), None)
    if own is not None and not any(argument.startswith("loss=") for argument in sys.argv):
        sys.argv.insert(own, "loss=custom")  # beside the others: argparse takes overrides from one place only
    try:
        _application()
    except LossbenchError as error:
        sys.exit(_fail(str(error), error.exit_code))
    except (HydraException, OmegaConfBaseException) as error:
        sys.exit(_fail(explain(error), ConfigError.exit_code))
    except OSError as error:
        if (sentence := refused(error)) is None:
            raise
        sys.exit(_fail(str(sentence), sentence.exit_code))
    except KeyboardInterrupt:
        sys.exit(_fail("Interrupted.", 130))


def _register_sweeps() -> None:
    """Make `sweep=NAME` choose a file of `sweeps/`."""
    store = ConfigStore.instance()
    store.store(group="sweep", name="null", node={}, package="_global_")
    for name, file in resources.sweeps().items():
        store.store(group="sweep", name=name, node=OmegaConf.load(file), package="_global_")


def explain(error: Exception) -> str:
    """One line that names the key or option, and the nearest right ones."""
    text = str(error)
    if isinstance(error, MissingConfigException) and error.options is not None and error.missing_cfg_file:
        group, _, option = str(error.missing_cfg_file).rpartition("/")
        return f"{group}={option} is no configuration.{nearest(option, error.options)}"
    if match := re.search(r"Could not override '([^']+)'", text):
        key = match[1]
        if cause := re.search(r"Value '(.*)' .*could not be converted to (\w+)", f"{text} {error.__cause__}"):
            return f"{key}={cause[1]} cannot be used: it must be of type {cause[2]}."
        if added := re.search(rf"full_key: ({re.escape(key)}\.\S+)", str(error.__cause__)):
            return f"{added[1]} is not there to be set; +{added[1]}=VALUE adds it."
        return f"Unknown key {key}.{nearest(key, _known(key))}"
    if isinstance(error, ConfigCompositionException) and error.__cause__ is not None:
        text = f"{text} ({error.__cause__})"
    return " ".join(text.split())


def _known(key: str) -> Iterable[str]:
    """The keys that `key` may have been meant as."""
    if key.startswith("hydra.launcher."):
        from lossbench.sweep.slurm.settings import SlurmSettings

        return [f"hydra.launcher.{name}" for name in ("workers", *SlurmSettings.model_fields)]
    if key.startswith("hydra.sweeper."):
        from lossbench.sweep.tune_setup import Options

        return [f"hydra.sweeper.{name}" for name in Options.model_fields]
    return [] if key.startswith("hydra.") else config.keys()


def _fail(sentence: str, exit_code: int) -> int:
    print(f"lossbench: {sentence}", file=sys.stderr)
    return exit_code
