"""A device that this installation of torch does not have: a GPU for a CPU build, a name that is none."""

from __future__ import annotations

import re

from torchsleuth.evidence import Evidence
from torchsleuth.evidence_forward import Argument, FailedOperation
from torchsleuth.frozen import frozen
from torchsleuth.model import Confidence, Diagnosis, Fact, Role
from torchsleuth.rule import CrashRule
from torchsleuth.rules.forward._culprits import Culprits
from torchsleuth.rules.forward._report import advice
from torchsleuth.rules.forward._words import code, failed, inferred, line_of, operand_facts, seen

AT_RUN_TIME = '"cuda" if torch.cuda.is_available() else "cpu"'
MPS_AT_RUN_TIME = '"mps" if torch.backends.mps.is_available() else "cpu"'


@frozen
class Lack:
    """What a message says is missing, and what to do about it."""

    pattern: str
    what: str  # "this torch …"
    why: str
    settle: str = ""  # where the device itself is to be had


_NO_CUDA_BUILD = "No driver and no GPU of this machine would change that: the CUDA part of torch is not in this build. `torch.version.cuda` is None."
_INSTALL = "To compute on a GPU, install a build of torch with CUDA, in the way that pytorch.org's selector names for this system."
LACKS = (
    Lack(r"Torch not compiled with CUDA enabled|module 'torch\._C' has no attribute '_cuda_", "this torch is built without CUDA", _NO_CUDA_BUILD, _INSTALL),
    Lack(r"No CUDA GPUs are available", "no GPU is visible to this process", "This torch has CUDA in it and finds no device: the machine has none, or `CUDA_VISIBLE_DEVICES` hides all of them.",
         "`nvidia-smi` lists the GPUs of the machine; `echo $CUDA_VISIBLE_DEVICES` says which of them the process may see."),
    Lack(r"Found no NVIDIA driver on your system", "there is no NVIDIA driver here", "This torch has CUDA in it. The driver of the system, which it needs to reach a GPU, is not found.",
         "`nvidia-smi` works where a driver is installed; in a container, the GPUs must be handed to it (`docker run --gpus all`)."),
    Lack(r"PyTorch is not linked with support for (?P<device>\w+) devices", "this torch is built without that device", "The part of torch for this device is not in this build."),
    Lack(r"Could not run 'aten::empty[\w.]*' with arguments from the '(?P<device>CUDA|MPS|XPU|HPU|HIP|MTIA)' backend", "this torch is built without that device", "The part of torch for this device is not in this build."),
    Lack(r"at start of device string: (?P<device>\S+)|Invalid device string: '(?P<text>[^']*)'", "that is no device of torch's", "A device is a kind that torch knows, and a number where there are several: `cpu`, `cuda`, `cuda:0`, `mps`."),
    Lack(r"Attempting to deserialize object on (a |an )?(?P<device>\w+) device.*is_available\(\) is False", "that device is not available here", ""),
    Lack(r"Attempting to deserialize object on \w+ device (?P<index>\d+) but torch\.\w+\.device_count\(\) is (?P<count>\d+)", "this machine has no device with that number", ""),
)  # fmt: skip
_SAVED = "A saved tensor goes back to the device that it was on, number included, unless `torch.load` is told another one."


class DeviceUnavailable(CrashRule):
    """The program asks for a device that this installation of torch cannot use.

    What happened
    -------------
    A tensor, a model or a checkpoint was to go to a device (`cuda`, `mps`) that torch has not got here: the build is for the CPU only,
    no driver or no GPU is there, or the name is none of torch's. The report names the call, and where the device was chosen.

    Why
    ---
    Which of these it is the message says, and they have different cures. "Torch not compiled with CUDA enabled" is about the
    installed package; "Found no NVIDIA driver" is about the system; "No CUDA GPUs are available" is about what the process may see.

    Example
    -------
    This raises an error about the device string, on every machine:

        import torch

        torch.zeros(3).to("gpu")

    Fix
    ---
    Choose the device while the program runs: `device = "cuda" if torch.cuda.is_available() else "cpu"`. Load checkpoints with
    `torch.load(path, map_location="cpu")`, and move the model afterwards.

    Common false explanations
    -------------------------
    "Install the CUDA toolkit." A build of torch brings the CUDA libraries that it needs, and one for the CPU takes none from the
    system. This prints the version of CUDA that the build has in it, or None:

        import torch

        print(torch.version.cuda)
    """

    name = "device-unavailable"
    messages = tuple(lack.pattern for lack in LACKS)
    needs = ("operation",)
    priority = 35

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        operation = failed(evidence)
        if operation is None:
            return None
        said, lack = next((found, lack) for lack in LACKS if (found := re.search(lack.pattern, operation.message)) is not None)
        asked, numbers = asked_device(operation), said.groupdict()
        culprits = Culprits()
        if asked is None or not culprits.add(asked.place, Role.OPERAND, "this device is asked for"):
            culprits.lead(operation, Role.OPERAND, "the device is wanted here")
        if asked is not None:
            culprits.create(asked.made, f"the device is chosen here: {device_of(asked)}")
        facts = _default(operation, asked) + operand_facts(operation, 2)
        if numbers.get("index"):
            facts.append(seen(f"The device asked for has the number {numbers['index']}, and this machine has {numbers['count']}, counted from 0."))
        what = device_of(asked) if asked is not None else "a GPU" if re.search("CUDA|cuda|NVIDIA", operation.message) else numbers.get("device") or "a device"
        saved = "deserialize" in lack.pattern and asked is None
        title = f"the tensors of the file were saved on {numbers.get('device') or 'a GPU'}, and {lack.what}" if saved else f"{code(operation.place.source or operation.name)} asks for {what}: {lack.what}"
        why = " ".join((lack.why or _SAVED * saved, lack.settle, f"torch says: {line_of(operation.message)[:200]}")).replace("  ", " ")
        return Diagnosis(self.name, title, Confidence.CERTAIN, culprits.done(), tuple(facts), why.strip(), advice(_advice(operation, what)))


def asked_device(operation: FailedOperation) -> Argument | None:
    """The argument that names the device: the one of the program's own, with where it came from."""
    named = [item for item in operation.arguments if device_of(item)]
    return next((item for item in named if item.source), named[0] if named else None)


def device_of(item: Argument) -> str:
    """`cuda:1` of `'cuda:1'` and of `device(type='cuda', index=1)`; empty for what is no device."""
    plain = re.fullmatch(r"'([A-Za-z]\w*(?::\d+)?)'", item.value)
    if plain and (item.name in ("device", "map_location") or plain[1].partition(":")[0].lower() in ("cuda", "gpu", "mps", "xpu", "hpu", "cpu", "tpu", "hip", "nvidia")):
        return plain[1]
    made = re.fullmatch(r"device\(type='(\w+)'(?:, index=(\d+))?\)", item.value)
    return (f"{made[1]}:{made[2]}" if made[2] else made[1]) if made else ""


def _default(operation: FailedOperation, asked: Argument | None) -> list[Fact]:
    if asked is not None or operation.name in ("load", "cuda", "set_device") or not operation.arguments:
        return []
    return [inferred("No argument of this call names a device: the program's default device does (`torch.set_default_device`, or `with torch.device(...)`).")]


def _advice(operation: FailedOperation, what: str) -> str:
    if operation.name == "load":
        return '`torch.load(..., map_location="cpu")`, and `model.to(device)` after `load_state_dict`.'
    if "device string" in operation.message:
        return f"NVIDIA's GPUs are called `cuda`, Apple's `mps`: `device = {AT_RUN_TIME}`."
    return f"Choose the device while the program runs, once, and use it everywhere: `device = {MPS_AT_RUN_TIME if 'mps' in what.lower() else AT_RUN_TIME}`."
