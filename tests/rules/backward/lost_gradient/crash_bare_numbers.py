import torch


class Score:
    def __init__(self, scale):
        self.scale = scale

    def __call__(self, values):
        return self.scale * sum(values) / len(values)


score = Score(2.0)
loss = torch.tensor(score([1.0, 3.0]))  # culprit: create
loss.backward()  # culprit: call
# says: bare
