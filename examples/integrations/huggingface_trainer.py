"""How far can this run's batch grow? The Hugging Face Trainer with its defaults, and one line added.

python examples/integrations/huggingface_trainer.py [EPOCHS]
"""

import sys
import tempfile

import torch
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from svag.integrations.huggingface import attach

EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 8
VOCABULARY, LENGTH = 64, 16


def text() -> dict[str, Tensor]:
    """Numbers that go up by one or two, from a random one on."""
    start, steps = torch.randint(VOCABULARY, (1,)), torch.randint(1, 3, (LENGTH,))
    ids = (start + steps.cumsum(0)) % VOCABULARY
    return {"input_ids": ids, "labels": ids.clone()}


if __name__ == "__main__":
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0
    )
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            per_device_train_batch_size=8,
            num_train_epochs=EPOCHS,
            learning_rate=1e-3,
            logging_steps=100,
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = Trainer(GPT2LMHeadModel(config), arguments, train_dataset=[text() for _ in range(400)])
        noise = attach(trainer, every=1)  # a short run: measure every step, whatever it costs
        trainer.train()
    print(f"{len(noise.readings)} readings, the last one: {noise.readings[-1]}")
