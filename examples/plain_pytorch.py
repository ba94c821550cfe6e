"""A loss of lossbench in a training loop of one's own.

    python examples/plain_pytorch.py

`losses.linear` takes the hidden states and the head, so that the logits of all tokens never exist; the same loss on
logits is `loss(logits, labels)`. Labels are aligned by the caller: the logits of token i predict token i + 1.
"""

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from lossbench import losses


def main(model_name: str = "lossbench:tiny", steps: int = 20) -> list[float]:
    from lossbench.models.locate import folder_of  # `lossbench:tiny` is inside the package; else a folder or hub id

    torch.manual_seed(0)
    folder = folder_of(model_name)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    batch = tokenizer(["Tom has 3 apples. He buys 4 more."] * 4, return_tensors="pt")
    labels = batch["input_ids"][:, 1:]

    loss = losses.create("focal", gamma=2.0)
    head = model.get_output_embeddings()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    values = []
    for _ in range(steps):
        hidden = model.base_model(**batch).last_hidden_state[:, :-1]
        value = losses.linear(hidden, head.weight, labels, loss)
        value.backward()
        optimizer.step()
        optimizer.zero_grad()
        values.append(value.item())
    print(f"focal loss {values[0]:.3f} -> {values[-1]:.3f}")
    return values


if __name__ == "__main__":
    main()
