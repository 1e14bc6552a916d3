import multiprocessing
import sys

import torch
from torch.utils.data import DataLoader, Dataset


class Squares(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        return torch.tensor(float(i)) ** 2


def work(queue):
    queue.put(torch.arange(3).sum().item())


def main():
    for batch in DataLoader(Squares(), batch_size=4, num_workers=2):
        print(batch.tolist())
    for method in ("fork", "spawn"):
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        process = context.Process(target=work, args=(queue,))
        process.start()
        print(method, queue.get(), end=" ")
        process.join()
        print(process.exitcode)
    print(sys.modules["__main__"].__name__)


if __name__ == "__main__":
    main()
