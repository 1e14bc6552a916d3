"""Tiny randomly initialised transformers models with broken inputs: module path, value, position and the user's lines."""

import re
import warnings

import pytest

pytest.importorskip("transformers")

from forward_harness import Case, check, describe, run_program  # noqa: E402

MODELS = {
    "bert": "BertForSequenceClassification(BertConfig(vocab_size=100, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, "
    "intermediate_size=32, max_position_embeddings=20, num_labels=3))",
    "roberta": "RobertaModel(RobertaConfig(vocab_size=100, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, "
    "intermediate_size=32, max_position_embeddings=20, pad_token_id=1))",
    "distilbert": "DistilBertModel(DistilBertConfig(vocab_size=100, dim=16, n_layers=1, n_heads=2, hidden_dim=32, max_position_embeddings=20))",
    "gpt2": "GPT2LMHeadModel(GPT2Config(vocab_size=100, n_embd=16, n_layer=1, n_head=2, n_positions=20))",
    "t5": "T5ForConditionalGeneration(T5Config(vocab_size=100, d_model=16, num_layers=1, num_heads=2, d_kv=8, d_ff=32, decoder_start_token_id=0))",
    "vit": "ViTForImageClassification(ViTConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, "
    "image_size=32, patch_size=8, num_channels=3, num_labels=4))",
}


def _case(name: str, model: str, body: str, rule: str, says: tuple[str, ...], creates_model: bool = False) -> Case:
    mark = "  #! create" if creates_model else ""
    classes = ", ".join(re.findall(r"\b[A-Z]\w+(?=\()", MODELS[model]))
    program = f"import torch\nfrom transformers import {classes}\nmodel = {MODELS[model]}{mark}\nmodel.eval()\n{body}"
    return Case(f"{model}-{name}", program, rule, says)


CASES = [
    _case("unknown-token", "bert", "ids = torch.arange(24).reshape(3, 8)\nids[2, 5] = 104  #! create\nmodel(input_ids=ids)  #! call\n",
          "index-out-of-range", ("model.bert.embeddings.word_embeddings", "`ids[2, 5]` = 104", "1 of 24 values", "0…99", "resize_token_embeddings"), True),
    _case("added-token", "gpt2", "ids = torch.arange(12).reshape(2, 6)\nids[1, 0] = 100  #! create\nmodel(ids)  #! call\n",
          "index-out-of-range", ("model.transformer.wte", "`ids[1, 0]` = 100", "0…99", "vocab_size"), True),
    _case("too-long", "bert", "ids = torch.arange(50).reshape(2, 25)  #! create\nmodel(ids)  #! call\n",
          "expand-size", ("20 is the model's `max_position_embeddings`", "25", "truncation=True", "model.bert.embeddings"), True),
    _case("segment", "bert", "ids = torch.arange(16).reshape(2, 8)\nkinds = torch.full((2, 8), 2)  #! create\nmodel(ids, token_type_ids=kinds)  #! call\n",
          "index-out-of-range", ("model.bert.embeddings.token_type_embeddings", "`kinds[0, 0]` = 2", "0…1", "token types")),
    _case("label", "bert", "ids = torch.arange(16).reshape(2, 8)\nlabels = torch.tensor([1, 3])  #! create\nmodel(ids, labels=labels)  #! call\n",
          "class-out-of-range", ("`labels[1]` = 3", "0…2", "num_labels"), True),
    _case("float-ids", "bert", "ids = torch.arange(16).reshape(2, 8).float()  #! create\nmodel(ids)  #! call\n",
          "index-dtype", ("`ids`", "float32", "model.bert.embeddings.word_embeddings")),
    _case("too-long", "roberta", "ids = torch.arange(2, 40).reshape(2, 19)  #! create\nmodel(ids)  #! call\n",
          "index-out-of-range", ("= 20", "0…19", "padding_idx + 1", "model.embeddings")),
    _case("ignored-label-as-id", "roberta", "ids = torch.arange(2, 20).reshape(2, 9)\nids[0, 4] = -100  #! create\nmodel(ids)  #! call\n",
          "index-out-of-range", ("`ids[0, 4]` = -100", "ignore", "model.embeddings.word_embeddings")),
    _case("too-long", "distilbert", "ids = torch.arange(50).reshape(2, 25)  #! create\nmodel(ids)  #! call\n",
          "broadcast-mismatch", ("max_position_embeddings", "25", "20", "model.embeddings"), True),
    _case("unknown-token", "distilbert", "ids = torch.arange(12).reshape(2, 6)\nids[0, 2] = 1000  #! create\nmodel(ids)  #! call\n",
          "index-out-of-range", ("model.embeddings.word_embeddings", "`ids[0, 2]` = 1000"), True),
    _case("too-long", "gpt2", "ids = torch.arange(50).reshape(2, 25)  #! create\nmodel(ids)  #! call\n",
          "index-out-of-range", ("model.transformer.wpe", "`position_ids[0, 20]` = 20", "5 of 25", "n_positions"), True),
    _case("label", "gpt2", "ids = torch.arange(16).reshape(2, 8)\nlabels = ids.clone()\nlabels[0, 3] = 120  #! create\nmodel(ids, labels=labels)  #! call\n",
          "class-out-of-range", ("`labels[0, 3]` = 120", "0…99"), True),
    _case("ignored-label", "t5", "ids = torch.arange(16).reshape(2, 8)\nanswer = torch.tensor([[1, 2, -100], [3, 4, 5]])  #! create\nmodel(input_ids=ids, decoder_input_ids=answer)  #! call\n",
          "index-out-of-range", ("`answer[0, 2]` = -100", "model.decoder.embed_tokens")),
    _case("batch-dictionary", "bert", "batch = {'input_ids': torch.arange(16).reshape(2, 8)}\nbatch['input_ids'][1, 2] = 100  #! create\nmodel(**batch)  #! call\n",
          "index-out-of-range", ("`batch['input_ids'][1, 2]` = 100",), True),
    _case("other-length-of-labels", "gpt2", "ids = torch.arange(20).reshape(2, 10)  #! create\nlabels = torch.arange(24).reshape(2, 12)  #! create\nmodel(ids, labels=labels)  #! call\n",
          "loss-target", ("[20, 100]", "[24]", "`labels` [2, 12]")),
    _case("label", "vit", "images = torch.zeros(2, 3, 32, 32)\nlabels = torch.tensor([1, 4])  #! create\nmodel(images, labels=labels)  #! call\n",
          "class-out-of-range", ("`labels[1]` = 4", "0…3"), True),
    _case("other-size", "vit", "images = torch.zeros(2, 3, 48, 48)  #! create\nmodel(images)  #! call\n",
          "library-check", ("transformers says", "48*48", "`images` has shape [2, 3, 48, 48]")),
    _case("grey-images", "vit", "images = torch.zeros(2, 1, 32, 32)  #! create\nmodel(images)  #! call\n",
          "library-check", ("Expected 3 but got 1", "`images` has shape [2, 1, 32, 32]"), True),
    _case("one-image", "vit", "image = torch.zeros(3, 32, 32)  #! create\nmodel(image)  #! call\n", "list-of-tensors", ("[3, 32, 32]",)),
]  # fmt: skip


def _configured(name: str, entries: str, labels: int, says: tuple[str, ...]) -> Case:
    """A configuration some of whose entries are the same number by accident; only the marked ones may be named."""
    program = f"""\
import torch
from transformers import BertConfig, BertForTokenClassification
TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
def build(layers):
    config = BertConfig(
        vocab_size=50,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=layers,
{entries}
    )
    return BertForTokenClassification(config)  #! create
labels = torch.arange({labels}).repeat(2, 1)  #! create
build(1)(input_ids=labels + 7, labels=labels)  #! call
"""
    return Case(name, program, "class-out-of-range", says, late=False)


CASES += [
    _configured("computed-beside-the-same-number", "        num_attention_heads=4,\n        num_labels=len(TAGS) - 1,  #! create", 5, ("holds the label 4",)),
    _configured("default-beside-the-same-number", "        num_attention_heads=2,", 3, ("holds the label 2", "2 is the model's")),
    _configured("given-beside-the-same-number", "        num_attention_heads=4,\n        num_labels=4,  #! create", 5, ("holds the label 4", "the 4 is set here")),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_transformers(case):
    import transformers

    transformers.logging.set_verbosity_error()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problems = check(case)
    assert not problems, "\n".join(problems)


def test_what_else_a_library_refuses_is_its_own_affair():
    """No size of a tensor is at stake: the library's message says it best."""
    program = f"import torch\nfrom transformers import BertConfig, BertForSequenceClassification\nmodel = {MODELS['bert']}\n"
    for call in ("model(input_ids=torch.zeros(2, 8, dtype=torch.long), inputs_embeds=torch.zeros(2, 8, 16))", "model()"):
        result = run_program(program + call + "\n")
        assert isinstance(result.error, ValueError)
        assert result.diagnosis is None, describe(result)
