"""What `hydra/launcher=slurm` can be told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, ValidationError, model_validator

from lossbench.config import Section
from lossbench.errors import ConfigError, nearest

Count = Annotated[int, Field(ge=1)]


class SlurmSettings(Section):
    """Resources of one job, which is one run, and how the launcher behaves. Units are in the names."""

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    exclude: str | None = None
    comment: str | None = None
    gres: str | None = None
    nodes: Count = 1
    tasks_per_node: Count = 1
    cpus_per_task: Count | None = None
    gpus_per_node: Count | None = None
    gpus_per_task: Count | None = None
    cpus_per_gpu: Count | None = None
    mem_gb: Annotated[float, Field(gt=0)] | None = None
    mem_per_gpu: str | None = None
    mem_per_cpu: str | None = None
    timeout_min: Count = 60
    signal_delay_s: Annotated[int, Field(ge=1)] = 120
    array_parallelism: Count = 256
    name: str | None = None
    setup: list[str] = Field(default_factory=list)
    srun_args: list[str] = Field(default_factory=list)
    additional_parameters: dict[str, Any] = Field(default_factory=dict)
    python: str | None = None
    attempts_without_progress: Count = 3
    poll_s: Annotated[float, Field(gt=0, le=30)] = 15.0
    wait: bool = True

    @model_validator(mode="after")
    def _one_kind_of_memory(self) -> SlurmSettings:
        given = [key for key in ("mem_gb", "mem_per_gpu", "mem_per_cpu") if getattr(self, key) is not None]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} exclude each other")
        return self

    @model_validator(mode="after")
    def _the_signal_comes_before_the_end(self) -> SlurmSettings:
        if self.signal_delay_s >= self.timeout_min * 60:
            raise ValueError(
                f"signal_delay_s={self.signal_delay_s} is not before the time limit of timeout_min={self.timeout_min}"
            )
        return self

    def sbatch(self) -> dict[str, Any]:
        """The parameters of submitit's executor; what this package sets itself is left out."""
        own = {"name", "attempts_without_progress", "poll_s", "wait", "python", "additional_parameters", "srun_args"}
        own |= {"comment", "timeout_min", "tasks_per_node", "mem_gb"}
        values = {key: value for key, value in self.model_dump().items() if key not in own and value not in (None, [])}
        values |= {"time": self.timeout_min, "ntasks_per_node": self.tasks_per_node}
        if self.mem_gb is not None:  # sbatch has no fractions
            values["mem"] = f"{round(self.mem_gb * 1024)}M"
        return values


def parse_settings(given: Mapping[str, Any]) -> SlurmSettings:
    """The launcher's keys; a wrong one is one sentence."""
    try:
        return SlurmSettings.model_validate(given)
    except ValidationError as error:
        sentences = []
        for fault in error.errors():
            key = ".".join(["hydra.launcher", *map(str, fault["loc"])])
            if fault["type"] == "extra_forbidden":
                sentences.append(f"Unknown key {key}.{nearest(str(fault['loc'][-1]), SlurmSettings.model_fields)}")
            elif fault["type"] == "value_error":
                sentences.append(f"hydra.launcher: {fault['ctx']['error']}.")
            else:
                sentences.append(f"{key}={fault['input']!r} cannot be used: {fault['msg'].lower()}.")
        raise ConfigError(" ".join(sentences)) from None
