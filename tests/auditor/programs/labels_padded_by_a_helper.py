# rule: padding-in-loss, exactly
# says: Set labels at padded positions to -100
BUG = True
import torch
from torch import nn
from torch.utils.data import DataLoader
from transformers import T5Config, T5ForConditionalGeneration


def padded(rows, value=0):
    return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=value)


def collate(pairs):
    ids = padded([a for a, _ in pairs])
    labels = padded([b for _, b in pairs], value=0 if BUG else -100)  # culprit
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": labels}


torch.manual_seed(0)
texts = [torch.randint(3, 30, (n,)) for n in (4, 9, 6, 7, 9, 5, 3, 8)]
model = T5ForConditionalGeneration(T5Config(vocab_size=30, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, decoder_start_token_id=0, pad_token_id=0))
opt = torch.optim.Adam(model.parameters())
for batch in DataLoader([(text, text.flip(0)) for text in texts], 4, collate_fn=collate):
    loss = model(**batch).loss  # culprit
    opt.zero_grad()
    loss.backward()
    opt.step()
