"""One thread, no network: set before torch is imported anywhere."""

import os

os.environ.update(
    OMP_WAIT_POLICY="PASSIVE",
    HF_HUB_OFFLINE="1",
    HF_DATASETS_OFFLINE="1",
    WANDB_MODE="offline",
    WANDB_SILENT="true",
    TOKENIZERS_PARALLELISM="false",
    MPLBACKEND="agg",
)

import pytest
from hypothesis import settings

settings.register_profile("lossbench", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("lossbench")


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ["LOSSBENCH_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)
