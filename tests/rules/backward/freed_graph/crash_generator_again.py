# says: `generated` `generator_loss.backward()`
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
generator, discriminator = nn.Sequential(nn.Linear(3, 5), nn.Tanh()), nn.Linear(5, 1)
for_generator = torch.optim.SGD(generator.parameters(), lr=0.1)
for_discriminator = torch.optim.SGD(discriminator.parameters(), lr=0.1)


def score(x, wanted):
    return F.binary_cross_entropy_with_logits(discriminator(x), torch.full((len(x), 1), wanted))


for _ in range(2):
    generated = generator(torch.randn(4, 3))  # culprit: create
    for_generator.zero_grad()
    generator_loss = score(generated, 1.0)
    generator_loss.backward()  # culprit: call
    for_generator.step()

    for_discriminator.zero_grad()
    false = discriminator(generated)  # culprit: operand
    loss = false.mean() - discriminator(torch.randn(4, 5)).mean()
    loss.backward()  # culprit: call
    for_discriminator.step()
