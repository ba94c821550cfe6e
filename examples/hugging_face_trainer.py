"""A mixture of losses in Hugging Face's Trainer: 0.6 cross-entropy + 0.4 Lovasz-softmax.

    python examples/hugging_face_trainer.py

The Trainer hands over logits and labels as they are, unshifted, and the number of labels in all micro-batches of the
step. With that number as `normalizer` gradient accumulation is exact for losses that are sums over tokens.
"""

import tempfile

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

from lossbench import losses


def main(model_name: str = "lossbench:tiny", steps: int = 10) -> list[float]:
    from lossbench.models.locate import folder_of

    folder = folder_of(model_name)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer("Tom has 3 apples. He buys 4 more.")["input_ids"]
    dataset = [{"input_ids": ids, "labels": ids, "attention_mask": [1] * len(ids)}] * 32

    mixture = losses.mixture({"cross_entropy": 0.6, "lovasz_softmax": 0.4})

    def compute_loss(outputs, labels, num_items_in_batch=None):
        return mixture(outputs.logits[:, :-1], labels[:, 1:], normalizer=num_items_in_batch)

    with tempfile.TemporaryDirectory() as out:
        arguments = TrainingArguments(
            out,
            max_steps=steps,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=2,
            learning_rate=1e-3,
            logging_steps=1,
            report_to=[],
            save_strategy="no",
            use_cpu=not torch.cuda.is_available(),
            disable_tqdm=True,
        )
        trainer = Trainer(model, arguments, train_dataset=dataset, compute_loss_func=compute_loss)
        trainer.train()
    values = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    print(f"mixture {values[0]:.3f} -> {values[-1]:.3f}")
    return values


if __name__ == "__main__":
    main()
