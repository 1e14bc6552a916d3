"""No finding on correct models: awkward ones of our own, and real architectures; every misuse of the latter found."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
import architectures  # noqa: E402
from correct_zoo import CORRECT  # noqa: E402

import torchsleuth  # noqa: E402
from torchsleuth.model import Outcome  # noqa: E402

TEXT = [name for name in architectures.ARCHITECTURES if name.split("-")[0] not in ("vit", "deit", "resnet", "convnext", "clip", "wav2vec2")]
ENCODERS = [n for n in TEXT if n.split("-")[0] in ("bert", "roberta", "distilbert", "electra", "albert", "deberta", "t5", "bart", "marian")]
CAUSAL = ["gpt2", "gpt-neox", "opt", "llama", "mistral", "qwen2", "gemma", "phi"]


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)
    torch.manual_seed(5)


def rules(report):
    return {d.rule for d in report.diagnoses}


@pytest.mark.parametrize("name", CORRECT)
def test_correct_model_is_not_accused(name):
    report = torchsleuth.audit(**CORRECT[name]())
    assert report.outcome is Outcome.OK, [(d.rule, d.title, d.facts) for d in report.diagnoses]


@pytest.mark.parametrize("name", architectures.ARCHITECTURES)
def test_architecture_used_correctly_is_not_accused(name):
    model, batch = architectures.ARCHITECTURES[name]()
    report = torchsleuth.audit(model, batch)
    assert report.outcome is Outcome.OK, [(d.rule, d.title, d.facts) for d in report.diagnoses]
    assert not any("could not" in note or "not made" in note for note in report.notes), report.notes


@pytest.mark.parametrize("name", ENCODERS)
def test_forgotten_attention_mask(name):
    model, batch = architectures.ARCHITECTURES[name]()
    batch.pop("attention_mask")
    report = torchsleuth.audit(model, batch)
    assert rules(report) == {"padding-leak"}
    assert report.diagnoses[0].culprits[0].source.startswith("torchsleuth.audit(")


@pytest.mark.parametrize("name", TEXT)
def test_inverted_attention_mask(name):
    model, batch = architectures.ARCHITECTURES[name]()
    report = torchsleuth.audit(model, {**batch, "attention_mask": 1 - batch["attention_mask"]})
    assert any("hides the words and keeps the padding" in d.title for d in report.diagnoses), report.diagnoses
    assert len(report.diagnoses) == 1


@pytest.mark.parametrize("name", CAUSAL)
def test_labels_shifted_beforehand(name):
    model, batch = architectures.ARCHITECTURES[name]()
    labels = torch.cat([batch["labels"][:, 1:], torch.full((architectures.B, 1), -100)], 1)
    assert rules(torchsleuth.audit(model, {**batch, "labels": labels})) == {"label-shift"}


def test_decoders_that_shift_nothing_themselves():
    model, batch = architectures.ARCHITECTURES["t5"]()
    report = torchsleuth.audit(model, {**batch, "decoder_input_ids": batch["labels"].clamp(min=0)})
    assert rules(report) == {"label-shift"} and report.diagnoses[0].fixes[0].title.startswith("Leave `decoder_input_ids` out")
    config = architectures.hf.BartConfig(**{**architectures.BART, "is_decoder": True, "is_encoder_decoder": False})
    ids = torch.randint(5, architectures.V, (architectures.B, architectures.L))
    report = torchsleuth.audit(architectures.hf.BartForCausalLM(config), {"input_ids": ids, "labels": ids.clone()})
    assert rules(report) == {"label-shift"} and "shifts nothing" in report.diagnoses[0].fixes[0].title


@pytest.mark.parametrize("name", ["gpt2", "bert-tags", "electra"])
def test_positions_counted_from_the_padding(name):
    model, batch = architectures.ARCHITECTURES[name]()
    batch = architectures.left(batch)
    (found,) = torchsleuth.audit(model, batch).diagnoses
    assert found.title == "padding before the words shifts their positions" and "`position_ids` is not given here" in found.culprits[0].label
    assert "row 2 alone, without the 5 padded tokens" in found.facts[0].text and "agree" in found.facts[1].text
    positions = (batch["attention_mask"].cumsum(1) - 1).clamp(min=0)
    assert torchsleuth.audit(model, {**batch, "position_ids": positions}).outcome is Outcome.OK


@pytest.mark.parametrize("name", ["gpt-neox", "gptj", "opt", "llama", "mistral", "qwen2", "gemma", "phi"])  # positions that are relative, or counted by the mask
def test_padding_before_the_words(name):
    model, batch = architectures.ARCHITECTURES[name]()
    report = torchsleuth.audit(model, architectures.left(batch))
    assert report.outcome is Outcome.OK, report.diagnoses


def test_positions_of_a_part_of_the_model():
    class Score(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.trunk, self.head = architectures.ARCHITECTURES["gpt2"]()[0].transformer, torch.nn.Linear(16, 3)

        def forward(self, tokens, mask):
            return self.head(self.trunk(tokens, attention_mask=mask).last_hidden_state[:, -1])

    batch = architectures.left(architectures.text())
    (found,) = torchsleuth.audit(Score(), (batch["input_ids"], batch["attention_mask"])).diagnoses
    assert found.culprits[0].source == "self.trunk(tokens, attention_mask=mask)"


@pytest.mark.parametrize("name", [*CAUSAL, "bert-tags", "electra"])
def test_padding_counted_in_the_loss(name):
    model, batch = architectures.ARCHITECTURES[name]()
    labels = batch["labels"].masked_fill(batch["labels"] == -100, 1)
    assert rules(torchsleuth.audit(model, {**batch, "labels": labels})) == {"padding-in-loss"}


@pytest.mark.parametrize("name", TEXT)
def test_id_beyond_the_vocabulary(name):
    model, batch = architectures.ARCHITECTURES[name]()
    ids = batch["input_ids"].clone()
    ids[0, 1] = 77
    report = torchsleuth.audit(model, {**batch, "input_ids": ids})
    assert rules(report) == {"input-out-of-range"}
    assert "`input_ids` holds 77 at [0, 1]" in report.diagnoses[0].title
    assert report.exception is not None


@pytest.mark.parametrize("name", ["bert-classes", "roberta", "gpt2", "bart"])
def test_sequences_beyond_the_maximum(name):
    model, batch = architectures.ARCHITECTURES[name]()
    batch = {k: torch.cat([v] * 6, 1) if v.dim() == 2 else v for k, v in batch.items()}
    report = torchsleuth.audit(model, batch)
    assert rules(report) <= {"input-out-of-range", "suspicious-input"} and report.diagnoses


def test_positions_and_channels_that_the_configuration_does_not_allow():
    model, batch = architectures.ARCHITECTURES["bert-classes"]()
    positions = torch.arange(30, 30 + architectures.L).expand(architectures.B, -1)
    (found,) = torchsleuth.audit(model, {**batch, "position_ids": positions}).diagnoses
    assert "goes up to 37; the model's configuration allows 32 positions" in found.facts[0].text
    model, batch = architectures.ARCHITECTURES["vit"]()
    (found,) = torchsleuth.audit(model, {**batch, "pixel_values": batch["pixel_values"].permute(0, 2, 3, 1)}).diagnoses
    assert "channels last" in found.title


def test_positions_that_begin_after_the_paddings_own():
    model, batch = architectures.ARCHITECTURES["roberta"]()  # 32 rows for positions, and positions count from 2
    longer = {k: torch.cat([v] * 4, 1)[:, :31] if v.dim() == 2 else v for k, v in batch.items()}
    (found,) = torchsleuth.audit(model, longer).diagnoses
    assert "has 32 rows" in found.facts[0].text and "enough for 30" in found.facts[0].text


@pytest.mark.parametrize("name", ["vit", "resnet", "convnext"])
def test_pixels_not_scaled(name):
    model, batch = architectures.ARCHITECTURES[name]()
    pixels = (torch.rand_like(batch["pixel_values"]) * 255).round()
    assert rules(torchsleuth.audit(model, {**batch, "pixel_values": pixels})) == {"suspicious-input"}


def test_plain_mean_over_a_real_encoder():
    model, batch = architectures.ARCHITECTURES["bert-plain"]()

    class Pooled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = model

        def forward(self, input_ids, attention_mask):
            h = self.encoder(input_ids, attention_mask=attention_mask).last_hidden_state
            return h.mean(1)  # the culprit

    report = torchsleuth.audit(Pooled(), batch)
    (found,) = report.diagnoses
    assert found.rule == "padding-leak" and found.culprits[0].source == "h.mean(1)"
