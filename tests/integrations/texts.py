"""What the tests of the Hugging Face Trainer share: a tiny GPT-2, texts of different lengths, a recording trainer."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

VOCABULARY, LENGTH = 16, 8


def tiny_gpt2(dropout: float = 0.0) -> Any:
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=LENGTH,
        n_embd=8,
        n_layer=1,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
        attn_pdrop=dropout,
        embd_pdrop=dropout,
        resid_pdrop=dropout,
        loss_type="ForCausalLMLoss",
    )
    return GPT2LMHeadModel(config).double()


def texts(examples: int = 48, ragged: bool = True) -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    found = []
    for _ in range(examples):
        start, length = torch.randint(0, VOCABULARY, (2,), generator=generator).tolist()
        ids = (start + torch.arange(LENGTH) + torch.randint(0, 2, (LENGTH,), generator=generator)) % VOCABULARY
        labels = ids.clone()
        if ragged:
            labels[3 + length % (LENGTH - 3) :] = -100
        found.append({"input_ids": ids, "labels": labels})
    return found


def arguments(folder: Path, **options: Any) -> TrainingArguments:
    chosen = {
        "per_device_train_batch_size": 4,
        "num_train_epochs": 2,
        "report_to": "none",
        "use_cpu": True,
        "save_strategy": "no",
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
        "train_sampling_strategy": "sequential",
    } | options
    return TrainingArguments(str(folder), **chosen)


class Recording(Trainer):
    """Writes down the weights, the batch and the tokens of every micro-batch that it back-propagates."""

    def __init__(self, *values: Any, **named: Any) -> None:
        super().__init__(*values, **named)
        self.seen: list[tuple[int, dict[str, Tensor], dict[str, Any], Any]] = []

    def training_step(self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None) -> Any:
        weights = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        self.seen.append((self.state.global_step, weights, dict(inputs), num_items_in_batch))
        return super().training_step(model, inputs, num_items_in_batch)
