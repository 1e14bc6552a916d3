# rule: padding-leak
# says: the model takes id 6 for padding, and padded positions hold 0
# says: Set `model.config.pad_token_id = 0`
BUG = True
import torch
from transformers import GPT2Config, GPT2ForSequenceClassification

torch.manual_seed(0)
model = GPT2ForSequenceClassification(GPT2Config(vocab_size=30, n_embd=16, n_layer=1, n_head=2, n_positions=16, num_labels=3, pad_token_id=6 if BUG else 0))
opt = torch.optim.Adam(model.parameters())
for _ in range(2):
    ids = torch.randint(7, 30, (4, 9)).masked_fill(torch.arange(9) >= torch.tensor([9, 6, 4, 7])[:, None], 0)
    loss = model(input_ids=ids, attention_mask=(ids != 0).long(), labels=torch.tensor([0, 1, 2, 1])).loss  # culprit
    opt.zero_grad()
    loss.backward()
    opt.step()
