# rule: padding-in-loss, exactly
# says: at every one of them
BUG = True
import torch
from transformers import GPT2Config, GPT2LMHeadModel

END = 59


def collated(rows):
    longest = max(map(len, rows))
    ids = torch.tensor([row + [END] * (longest - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    labels = ids.clone()
    labels[labels == END if BUG else mask == 0] = -100  # culprit
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=60, n_positions=16, n_embd=16, n_layer=1, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
                                   bos_token_id=END, eos_token_id=END, pad_token_id=END))
texts = [torch.randint(0, 59, (n,)).tolist() + [END] for n in (4, 9, 6, 11, 5, 8)]
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(2):
    loss = model(**collated(texts)).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
