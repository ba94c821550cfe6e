"""EMO in a LightningModule. Its cost embedding is the head before training, bound once.

python examples/lightning_module.py
"""

import lightning
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer

from lossbench import losses


class FineTuning(lightning.LightningModule):
    def __init__(self, folder: str) -> None:
        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self.loss = losses.create("emo").bind(embedding=self.model.get_output_embeddings().weight.clone())
        self.values: list[float] = []

    def training_step(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        hidden = self.model.base_model(**batch).last_hidden_state[:, :-1]
        labels = batch["input_ids"][:, 1:]
        value = losses.linear(hidden, self.model.get_output_embeddings().weight, labels, self.loss)
        self.values.append(value.item())
        return value

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main(model_name: str = "lossbench:tiny", steps: int = 10) -> list[float]:
    from lossbench.models.locate import folder_of

    folder = str(folder_of(model_name))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    row = tokenizer("Tom has 3 apples. He buys 4 more.", return_tensors="pt")
    rows = [{key: value[0] for key, value in row.items()}] * 4 * steps
    module = FineTuning(folder)
    trainer = lightning.Trainer(
        max_steps=steps, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False
    )
    trainer.fit(module, DataLoader(rows, batch_size=4))
    print(f"emo {module.values[0]:.3f} -> {module.values[-1]:.3f}")
    return module.values


if __name__ == "__main__":
    main()
