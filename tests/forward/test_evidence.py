"""Evidence of a failed operation is plain data: JSON and back; and the rules need nothing else."""

import json

from forward_harness import run_program

from torchsleuth.evidence import Evidence
from torchsleuth.model import from_plain, to_plain
from torchsleuth.rule import CrashRule, rules_of

PROGRAMS = [
    "import torch\nt = torch.nn.Embedding(4, 2)\nids = torch.tensor([[1, 4]])\nt(ids)\n",
    "import torch\nimport torch.nn.functional as F\nF.binary_cross_entropy(torch.tensor([2.0]), torch.tensor([1.0]))\n",
    "import torch\ndef ones(n):\n    return torch.ones(2, n)\na = torch.zeros(2, 3)\na + ones(4)\n",
    "import torch\nx = torch.zeros(3, 4)\nfor i in range(4):\n    x[i, 0] = 1.0\n",
]


def test_round_trip():
    for program in PROGRAMS:
        result = run_program(program)
        text = json.dumps(to_plain(result.evidence))
        assert from_plain(Evidence, json.loads(text)) == result.evidence


def test_rules_are_functions_of_the_evidence():
    for program in PROGRAMS:
        result = run_program(program)
        evidence = from_plain(Evidence, json.loads(json.dumps(to_plain(result.evidence))))
        rule = next(rule for rule in rules_of(CrashRule) if rule.name == result.diagnosis.rule)
        again = rule.diagnose(evidence)
        assert (again.title, again.culprits, again.facts) == (result.diagnosis.title, result.diagnosis.culprits, result.diagnosis.facts)
