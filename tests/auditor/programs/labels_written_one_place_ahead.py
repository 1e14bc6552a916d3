# rule: label-shift, exactly
# says: Shift once
BUG = True
import torch
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel


def collate(texts):
    ids = torch.stack(texts)
    labels = ids.clone()
    if BUG:
        labels[:, :-1] = ids[:, 1:].clone()  # culprit
        labels[:, -1] = -100
    return {"input_ids": ids, "labels": labels}


torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=30, n_embd=16, n_layer=1, n_head=2, n_positions=16))
opt = torch.optim.Adam(model.parameters())
for batch in DataLoader(torch.randint(3, 30, (8, 10)), 4, collate_fn=collate):
    loss = model(**batch).loss  # culprit
    opt.zero_grad()
    loss.backward()
    opt.step()
