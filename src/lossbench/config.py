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
    compile: bool  # torch.compile of the body while training
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
    corrupt_targets: Annotated[float, Field(ge=0, lt=1)]  # share of the training examples with another one's target
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
    method: Literal["none", "lora", "qlora"]
    bits: Literal[4, 8] | None  # of the frozen weights under qlora; null otherwise
    r: PositiveInt
    alpha: PositiveInt
    dropout: Fraction
    target_modules: tuple[str, ...]

    @model_validator(mode="after")
    def _lora_has_targets(self) -> PeftConfig:
        if self.method != "none" and not self.target_modules:
            raise ValueError("LoRA needs peft.target_modules, such as [q_proj,v_proj]; this model's YAML names none")
        return self

    @model_validator(mode="after")
    def _bits_belong_to_qlora(self) -> PeftConfig:
        if (self.method == "qlora") != (self.bits is not None):
            raise ValueError("peft.bits is 4 or 8 for peft=qlora, and null for every other method")
        return self


class OptimizerConfig(Section):
    name: Literal["adamw", "adamw_8bit", "sgd"]
    lr: Annotated[float, Field(gt=0)]
    weight_decay: Annotated[float, Field(ge=0)]
    betas: tuple[Fraction, Fraction] | None  # of AdamW; null for SGD
    eps: Annotated[float, Field(gt=0)] | None  # of AdamW; null for SGD
    momentum: Fraction | None  # of SGD; null for AdamW
    ema_decay: Annotated[float, Field(gt=0, lt=1)] | None  # of averaged weights, which are then what is kept

    @model_validator(mode="after")
    def _has_its_own_keys(self) -> OptimizerConfig:
        own = {"sgd": {"momentum"}}.get(self.name, {"betas", "eps"})
        for key in ("betas", "eps", "momentum"):
            if (getattr(self, key) is not None) != (key in own):
                wanted = "needs a value" if key in own else "must be null"
                raise ValueError(f"optimizer.{key} {wanted} for optimizer={self.name}")
        return self


class SchedulerConfig(Section):
    name: Literal["linear", "cosine", "constant"]
    warmup_fraction: Fraction  # of all optimizer steps
    final_fraction: Fraction  # of the peak learning rate, at the last step


class TrainerConfig(Section):
    max_steps: PositiveInt | None  # optimizer steps; null: dataset.epochs decides
    batch_size: PositiveInt  # examples in a forward pass
    accumulate: PositiveInt  # forward passes in an optimizer step, over all devices
    tokens_per_step: PositiveInt | None  # tokens in an optimizer step, at most; null: batch_size * accumulate examples
    precision: Literal["32-true", "bf16-mixed", "bf16-true"]
    fused_head: bool | Literal["auto"]  # LM head and loss in one step, without the logits of all tokens
    gradient_clip: Annotated[float, Field(ge=0)]  # maximal norm; 0 turns clipping off
    validate_every: PositiveInt  # optimizer steps
    log_every: PositiveInt  # optimizer steps
    select_by: str  # the validation metric that chooses the checkpoint
    early_stopping: PositiveInt | None  # validations without a better value, after which training ends
    checkpoint_every: PositiveInt | None  # optimizer steps between checkpoints to go on from; null: when interrupted
    loader_workers: Annotated[int, Field(ge=0)]  # processes that make batches; 0: none
    devices: PositiveInt  # processes that train one run, one a device
    strategy: Literal["auto", "ddp", "fsdp", "deepspeed"]
    accelerator: Literal["auto", "cpu", "gpu"]
    deterministic: bool  # only algorithms that give the same bits every time
    threads: PositiveInt | None  # CPU threads; null: one for a small model, else what torch finds
    progress: bool

    @model_validator(mode="after")
    def _steps_are_cut_one_way(self) -> TrainerConfig:
        if self.tokens_per_step is not None and self.accumulate > 1:
            raise ValueError(
                f"trainer.tokens_per_step={self.tokens_per_step} decides how many forward passes a step has; "
                f"leave trainer.accumulate={self.accumulate} at 1"
            )
        if self.tokens_per_step is None and self.accumulate % self.devices:
            raise ValueError(
                f"trainer.accumulate={self.accumulate} forward passes of a step cannot be shared evenly by "
                f"trainer.devices={self.devices}: make trainer.accumulate a multiple of it, and adapt batch_size"
            )
        return self


class MauveConfig(Section):
    """MAUVE of sampled continuations; `evaluation=mauve` turns it on."""

    protocol: Literal["lossbench", "emo", "mixce"]
    featurizer: str  # a causal LM: a folder, a hub id such as gpt2-large, or `lossbench:tiny`
    pooling: Literal["last", "mean"]
    generation_seeds: PositiveInt
    clustering_seeds: PositiveInt
    buckets: Annotated[int, Field(ge=2)] | None  # null: a tenth of the texts
    tokens: PositiveInt | None  # length that both texts are cut to; null: what nine in ten of the human texts reach
    max_new_tokens: PositiveInt | None  # null: the tokens of the longest human continuation
    temperature: Annotated[float, Field(gt=0)]
    tune: tuple[Annotated[float, Field(gt=0)], ...]  # temperatures that are tried on validation
    tune_limit: PositiveInt | None  # at most so many texts for that
    ceiling: bool  # human texts against human texts


class MemorisationConfig(Section):
    """Training texts that are reproduced verbatim; `evaluation=memorisation` turns it on."""

    prompt_tokens: PositiveInt  # of a target that the model is given
    continuation_tokens: PositiveInt  # that it has to reproduce
    limit: PositiveInt | None  # at most so many training texts, and as many held-out ones


class EvaluationConfig(Section):
    split: Literal["validation", "test"]
    limit: PositiveInt | None  # at most so many evaluated examples
    validation_limit: PositiveInt | None
    batch_size: PositiveInt
    generate: bool  # false: perplexity only
    max_new_tokens: PositiveInt | None  # null: the task's own
    samples: Annotated[int, Field(ge=0)]  # sampled answers an example beside the greedy one: pass@k, maj@k
    sample_temperature: Annotated[float, Field(gt=0)]
    rolling: bool  # perplexity of whole texts in windows, for language modelling
    rolling_max_length: Annotated[int, Field(ge=2)] | None  # null: the model's window, at most 1,024 tokens
    rolling_stride: PositiveInt | None  # null: half of the window
    rolling_bos: Literal["none", "first", "each_window"]
    mauve: MauveConfig | None
    memorisation: MemorisationConfig | None


class TrackingConfig(Section):
    name: Literal["wandb", "tensorboard", "none"]
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

    @model_validator(mode="after")
    def _eight_bits_need_a_gpu(self) -> RunConfig:
        wants = {"peft=qlora": self.peft.method == "qlora", "optimizer=adamw_8bit": self.optimizer.name == "adamw_8bit"}
        for what, wanted in wants.items():
            if wanted and self.trainer.accelerator == "cpu":
                raise ValueError(f"{what} needs a GPU, but trainer.accelerator=cpu; take peft=lora and optimizer=adamw")
        return self


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
            return f"{key}: {fault['ctx']['error']}." if key else f"{fault['ctx']['error']}."
    return f"{key}={fault['input']!r} cannot be used: {fault['msg'][0].lower()}{fault['msg'][1:]}."
