"""A loss of lossbench in TRL's SFTTrainer (pip install trl).

python examples/trl_sft.py
"""

import tempfile

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

from lossbench import losses


def main(model_name: str = "lossbench:tiny", steps: int = 10) -> list[float]:
    from lossbench.models.locate import folder_of

    folder = folder_of(model_name)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    loss = losses.create("label_smoothing")

    def compute_loss(outputs, labels, num_items_in_batch=None):
        return loss(outputs.logits[:, :-1], labels[:, 1:], normalizer=num_items_in_batch)

    rows = Dataset.from_list([{"prompt": "Tom has 3 apples. He buys 4 more.", "completion": " He has 7."}] * 32)
    with tempfile.TemporaryDirectory() as out:
        arguments = SFTConfig(
            out,
            max_steps=steps,
            per_device_train_batch_size=4,
            learning_rate=1e-3,
            logging_steps=1,
            report_to=[],
            save_strategy="no",
            bf16=False,
            gradient_checkpointing=False,
            use_cpu=not torch.cuda.is_available(),
            disable_tqdm=True,
        )
        trainer = SFTTrainer(
            model, arguments, train_dataset=rows, processing_class=tokenizer, compute_loss_func=compute_loss
        )
        trainer.train()
    values = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    print(f"label smoothing {values[0]:.3f} -> {values[-1]:.3f}")
    return values


if __name__ == "__main__":
    main()
