# rule: ratio-of-one, exactly
# says: 40 of each
"""Four passes over one rollout, and in each of them the old probabilities are those of the policy as it is by then."""

import torch
from torch import nn

BUG = True


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.out = nn.Linear(4, 16), nn.Linear(16, 3)

    def forward(self, seen):
        return torch.log_softmax(self.out(torch.tanh(self.body(seen))), dim=-1)


def clipped_loss(policy, rows, around=0.2):
    new = policy(rows["seen"]).gather(1, rows["actions"][:, None]).squeeze(1)
    if BUG:
        with torch.no_grad():
            old = policy(rows["seen"]).gather(1, rows["actions"][:, None]).squeeze(1)  # culprit
    else:
        old = rows["scores"]
    ratio = (new - old).exp()  # culprit
    return -torch.min(ratio * rows["gains"], torch.clamp(ratio, 1 - around, 1 + around) * rows["gains"]).mean()


@torch.no_grad()
def rollout(policy, count=40):
    seen = torch.randn(count, 4)
    scores = policy(seen)
    actions = torch.multinomial(scores.exp(), 1).squeeze(1)
    gains = (actions == seen[:, :3].argmax(1)).float() - 0.3
    return {"seen": seen, "actions": actions, "gains": gains, "scores": scores.gather(1, actions[:, None]).squeeze(1)}


torch.manual_seed(0)
policy = Policy()
optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
for _ in range(3):
    rows = rollout(policy)
    for _ in range(4):
        loss = clipped_loss(policy, rows)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(float(loss.detach()))
