import torch


def loss_of(prediction, target):
    error = prediction.detach() - target  # culprit: lost-grad
    return (error**2).mean()


model = torch.nn.Linear(3, 1)
loss = loss_of(model(torch.randn(5, 3)), torch.zeros(5, 1))
loss.backward()  # culprit: call
# says: prediction [5, 1]
