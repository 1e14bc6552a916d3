import os
import sys

import torch

how = sys.argv[1]
if how == "value-error":

    def inner(x):
        raise ValueError("mine") from KeyError("first")

    inner(torch.ones(2))
elif how == "interrupt":
    raise KeyboardInterrupt
elif how == "os-exit":
    print("bye", flush=True)
    os._exit(5)
elif how == "hook":
    sys.excepthook = lambda kind, error, tb: print("hooked", kind.__name__, error)
    torch.ones(2).view(3)
elif how == "delete":
    os.remove(__file__)
    torch.ones(2, requires_grad=True).add_(1)
elif how == "chdir":
    os.chdir("/")
    torch.ones(2, requires_grad=True).add_(1)
elif how == "exit-message":
    sys.exit("a message")
elif how == "signal":
    import signal

    os.kill(os.getpid(), signal.SIGTERM)
elif how == "recursion":

    def deeper(x):
        return deeper(x + 1)

    try:
        deeper(torch.ones(1))
    except RecursionError as error:
        print("caught", type(error).__name__)
