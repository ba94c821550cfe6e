"""The typed schema of a run: every key, its type and its range.

Hydra composes YAML into a mapping; `parse` turns that mapping into a frozen `RunConfig` or into one sentence that
names the key, the value, where it stands and what is allowed. Defaults live in `conf/`, not here, so that a reader
finds every number in one place. Importing this module pulls in neither torch nor transformers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from lossbench.errors import ConfigError, nearest

PositiveInt = Annotated[int, Field(ge=1)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Name = Annotated[str, Field(min_length=1, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


class Section(BaseModel):
    """A block of the configuration: frozen, and closed to keys it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class OpenSection(BaseModel):
    """A block whose remaining keys belong to the component it names, which checks them itself."""

    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=False)

    @property
    def options(self) -> dict[str, Any]:
        """The keys that the schema does not know: parameters of the named loss or task."""
        return dict(self.model_extra or {})


class ModelConfig(Section):
    name: Name
    path: str  # a folder, a hub id, or `lossbench:tiny` for the model inside the package
    revision: str | None
    dtype: Literal["float32", "bfloat16", "float16"]
    attention: Literal["sdpa", "eager", "flash_attention_2"]
    trust_remote_code: bool
    gradient_checkpointing: bool
    learning_rate: Annotated[float, Field(gt=0)]  # what optimizer.lr follows unless it is set
    lora_target_modules: tuple[str, ...]
    licence: str


class DatasetConfig(OpenSection):
    name: Name
    task: str
    path: str | None  # a folder with train.jsonl ...; null: the task's own source
    revision: str | None
    skip_bad: bool  # leave malformed rows out instead of stopping
    limit: PositiveInt | None  # at most so many training examples
    epochs: Annotated[float, Field(gt=0)]  # how long to train unless trainer.max_steps is set
    max_length: PositiveInt | None  # tokens of prompt and target; null: the model's context window
    group_by_length: bool  # similar lengths in one step: less padding


class Schedule(Section):
    """A term's weight that moves from `start` to `end` over `steps` optimizer steps."""

    schedule: Literal["linear", "cosine", "step"]
    start: float
    end: float
    steps: PositiveInt


class TermConfig(OpenSection):
    weight: float | Schedule
    scope: Literal["answer", "sequence"]


class LossConfig(Section):
    """A weighted sum of terms. `_target_: my.module.MyLoss`, with that class's parameters beside it, is a loss of one
    term whose class is imported from there."""

    name: Name
    terms: dict[str, TermConfig]

    @model_validator(mode="before")
    @classmethod
    def _target_is_a_term(cls, given: Any) -> Any:
        if not isinstance(given, Mapping) or "_target_" not in given:
            return given
        module, _, attribute = str(given["_target_"]).replace(":", ".").rpartition(".")
        parameters = {key: value for key, value in given.items() if key not in {"_target_", "name", "terms"}}
        term = {"weight": 1.0, "scope": "answer", **parameters, "loss": f"{module}:{attribute}"}
        return {"name": attribute, "terms": {attribute: term}}

    @model_validator(mode="after")
    def _has_a_term(self) -> LossConfig:
        if not self.terms:
            raise ValueError("a loss needs at least one term, such as `focal: {weight: 1.0, scope: answer}`")
        return self


class PeftConfig(Section):
    method: Literal["none", "lora"]
    r: PositiveInt
    alpha: PositiveInt
    dropout: Fraction
    target_modules: tuple[str, ...]

    @model_validator(mode="after")
    def _lora_has_targets(self) -> PeftConfig:
        if self.method == "lora" and not self.target_modules:
            raise ValueError("LoRA needs peft.target_modules, such as [q_proj,v_proj]; this model's YAML names none")
        return self


class OptimizerConfig(Section):
    name: Literal["adamw"]
    lr: Annotated[float, Field(gt=0)]
    weight_decay: Annotated[float, Field(ge=0)]
    betas: tuple[Fraction, Fraction]
    eps: Annotated[float, Field(gt=0)]


class SchedulerConfig(Section):
    name: Literal["linear", "cosine", "constant"]
    warmup_fraction: Fraction  # of all optimizer steps
    final_fraction: Fraction  # of the peak learning rate, at the last step


class TrainerConfig(Section):
    max_steps: PositiveInt | None  # optimizer steps; null: dataset.epochs decides
    batch_size: PositiveInt  # examples in a forward pass
    accumulate: PositiveInt  # forward passes in an optimizer step
    precision: Literal["32-true", "bf16-mixed", "bf16-true"]
    fused_head: bool | Literal["auto"]  # LM head and loss in one step, without the logits of all tokens
    gradient_clip: Annotated[float, Field(ge=0)]  # maximal norm; 0 turns clipping off
    validate_every: PositiveInt  # optimizer steps
    log_every: PositiveInt  # optimizer steps
    accelerator: Literal["auto", "cpu", "gpu"]
    threads: PositiveInt | None  # CPU threads; null: one for a small model, else what torch finds
    progress: bool


class EvaluationConfig(Section):
    split: Literal["validation", "test"]
    limit: PositiveInt | None  # at most so many evaluated examples
    validation_limit: PositiveInt | None
    batch_size: PositiveInt
    generate: bool  # false: perplexity only
    max_new_tokens: PositiveInt | None  # null: the task's own


class TrackingConfig(Section):
    mode: Literal["offline", "online", "auto", "disabled"]
    project: Name
    entity: str | None


class PathsConfig(Section):
    runs: str
    cache: str | None  # tokenised data; null: $LOSSBENCH_CACHE, or else ~/.cache/lossbench


class RunConfig(Section):
    study: Name
    seed: Annotated[int, Field(ge=0, lt=2**32)]
    model: ModelConfig
    dataset: DatasetConfig
    loss: LossConfig
    peft: PeftConfig
    optimizer: OptimizerConfig
    scheduler: SchedulerConfig
    trainer: TrainerConfig
    evaluation: EvaluationConfig
    tracking: TrackingConfig
    paths: PathsConfig


def parse(composed: Mapping[str, Any]) -> RunConfig:
    """A composed, resolved mapping -> `RunConfig`; raises `ConfigError` with one sentence a fault."""
    try:
        return RunConfig.model_validate(composed)
    except ValidationError as error:
        raise ConfigError("\n".join(_sentence(fault) for fault in error.errors())) from None


def keys(model: type[BaseModel] = RunConfig, prefix: str = "") -> Iterator[str]:
    """Every dotted key of the schema: `study`, `model.name`, ..."""
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from keys(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _sentence(fault: Any) -> str:
    key = ".".join(str(part) for part in fault["loc"])
    match fault["type"]:
        case "extra_forbidden":
            return f"Unknown key {key}={fault['input']!r}.{nearest(key, keys())}"
        case "missing":
            return f"The key {key} is missing from the configuration; a YAML file of its group must set it."
        case "value_error":
            return f"{key}: {fault['ctx']['error']}."
    return f"{key}={fault['input']!r} cannot be used: {fault['msg'][0].lower()}{fault['msg'][1:]}."
