from dataclasses import dataclass
from torchsleuth.model import Status
@dataclass
class Proof:
    status: Status
    text: str
    facts: tuple = ()
def proved(jobs):
    return []
