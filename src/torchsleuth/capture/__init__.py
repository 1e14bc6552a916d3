"""From a traceback to `Evidence`: frames, graph and live tensors are read here, and let go before it returns."""
