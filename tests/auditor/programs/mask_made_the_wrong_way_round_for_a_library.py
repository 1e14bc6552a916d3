# rule: padding-leak, exactly
# says: the mask given to `attention_mask` hides the words and keeps the padding
# says: Make `attention_mask` the other way round
BUG = True
import torch
from torch import nn
from torch.utils.data import DataLoader
from transformers import BertConfig, BertModel


def collate(texts):
    ids = nn.utils.rnn.pad_sequence(texts, batch_first=True)
    return ids, ((ids == 0) if BUG else (ids != 0)).long()  # culprit


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = BertModel(BertConfig(vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, max_position_embeddings=16))
        self.head = nn.Linear(16, 3)

    def forward(self, input_ids, attention_mask):
        hidden = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state  # culprit
        return self.head(hidden[:, 0])


torch.manual_seed(0)
model = Classifier()
opt = torch.optim.Adam(model.parameters())
for ids, mask in DataLoader([torch.randint(1, 30, (n,)) for n in (9, 6, 4, 7)], 4, collate_fn=collate):
    loss = nn.functional.cross_entropy(model(ids, mask), torch.tensor([0, 1, 2, 1]))
    opt.zero_grad()
    loss.backward()
    opt.step()
