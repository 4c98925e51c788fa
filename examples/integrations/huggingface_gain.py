"""Train at 8 times the batch and end where the small batch ended: one line beside the Hugging Face Trainer.

python examples/integrations/huggingface_gain.py [STEPS]
"""

import sys
import tempfile

import torch
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from svag.integrations.huggingface import attach

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 1500
SMALL, LARGE = 8, 64
VOCABULARY, LENGTH = 64, 16


def text() -> dict[str, Tensor]:
    """Numbers that go up by one or two, from a random one on."""
    start, steps = torch.randint(VOCABULARY, (1,)), torch.randint(1, 3, (LENGTH,))
    ids = (start + steps.cumsum(0)) % VOCABULARY
    return {"input_ids": ids, "labels": ids.clone()}


def train(texts: list[dict[str, Tensor]], batch_size: int) -> None:
    """Train with the settings of the small batch and print the final training loss."""
    torch.manual_seed(1)
    config = GPT2Config(
        vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0
    )
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            per_device_train_batch_size=batch_size,
            max_steps=STEPS,  # of the small batch
            learning_rate=1e-3,
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = Trainer(GPT2LMHeadModel(config), arguments, train_dataset=texts, eval_dataset=texts)
        if batch_size != SMALL:
            attach(trainer, base_batch_size=SMALL)
        trainer.train()
        loss = trainer.evaluate()["eval_loss"]
    print(f"training loss {loss:.3f} after {trainer.state.global_step} steps")


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = [text() for _ in range(2000)]
    for size in (SMALL, LARGE):
        train(data, size)
