"""Tiny randomly initialised `transformers` models and correct batches for them. Nothing is downloaded."""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
import transformers as hf

V, B, L = 40, 3, 8
SMALL = {"vocab_size": V, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 32}
LLAMA = {**SMALL, "num_key_value_heads": 1, "pad_token_id": 0, "head_dim": 8}


def text(pad: int = 0, low: int = 5) -> dict:
    ids = torch.randint(low, V, (B, L))
    mask = torch.ones(B, L, dtype=torch.long)
    mask[1, 6:] = 0
    mask[2, 3:] = 0
    ids[mask == 0] = pad
    return {"input_ids": ids, "attention_mask": mask}


def left(batch: dict) -> dict:
    """The same with the padding before the words."""
    counts = batch["attention_mask"].sum(1).tolist()
    return {name: torch.stack([row.roll(-n) for row, n in zip(tensor, counts, strict=True)]) if tensor.dim() == 2 else tensor for name, tensor in batch.items()}


def language(pad: int = 0) -> dict:
    batch = text(pad)
    return {**batch, "labels": batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)}


def pair(pad: int = 0) -> dict:
    labels = torch.randint(5, V, (B, 6))
    labels[1, 4:] = -100
    return {**text(pad), "labels": labels}


def waves() -> dict:
    mask = (torch.arange(400) < torch.tensor([400, 300, 220])[:, None]).long()
    return {"input_values": torch.randn(B, 400) * mask, "attention_mask": mask, "labels": torch.tensor([0, 1, 1])}


def images() -> dict:
    return {"pixel_values": torch.randn(B, 3, 16, 16), "labels": torch.tensor([0, 1, 2])}


def _classes(batch: dict) -> dict:
    return {**batch, "labels": torch.tensor([0, 1, 1])}


def _tags(batch: dict) -> dict:
    return {**batch, "labels": torch.randint(0, 2, (B, L)).masked_fill(batch["attention_mask"] == 0, -100)}


def _masked(batch: dict) -> dict:
    labels = torch.full((B, L), -100)
    labels[:, 1] = batch["input_ids"][:, 1]
    ids = batch["input_ids"].clone()
    ids[:, 1] = 4
    return {**batch, "input_ids": ids, "labels": labels}


T5 = {"vocab_size": V, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2, "decoder_start_token_id": 0}
BART = {
    "vocab_size": V, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "max_position_embeddings": 32, "pad_token_id": 1, "decoder_start_token_id": 2,
    "forced_eos_token_id": None,
}  # fmt: skip
VIT = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "image_size": 16, "patch_size": 8, "num_labels": 3}

ARCHITECTURES = {
    "bert-classes": lambda: (hf.BertForSequenceClassification(hf.BertConfig(**SMALL)), _classes(text())),
    "bert-tags": lambda: (hf.BertForTokenClassification(hf.BertConfig(**SMALL)), _tags(text())),
    "bert-masked": lambda: (hf.BertForMaskedLM(hf.BertConfig(**SMALL)), _masked(text())),
    "bert-questions": lambda: (  # chooses among all positions, padded ones too, as its authors train it
        hf.BertForQuestionAnswering(hf.BertConfig(**SMALL)), {**text(), "start_positions": torch.tensor([1, 2, 0]), "end_positions": torch.tensor([3, 4, 2])}),
    "llama-questions": lambda: (
        hf.LlamaForQuestionAnswering(hf.LlamaConfig(**LLAMA)), {**text(), "start_positions": torch.tensor([1, 2, 0]), "end_positions": torch.tensor([3, 4, 2])}),
    "bert-plain": lambda: (hf.BertModel(hf.BertConfig(**SMALL)), text()),
    "roberta": lambda: (hf.RobertaForSequenceClassification(hf.RobertaConfig(**SMALL, pad_token_id=1)), _classes(text(1))),
    "distilbert": lambda: (
        hf.DistilBertForSequenceClassification(hf.DistilBertConfig(vocab_size=V, dim=16, n_layers=2, n_heads=2, hidden_dim=32, max_position_embeddings=32)),
        _classes(text()),
    ),
    "electra": lambda: (hf.ElectraForTokenClassification(hf.ElectraConfig(**SMALL, embedding_size=16)), _tags(text())),
    "albert": lambda: (hf.AlbertForSequenceClassification(hf.AlbertConfig(**SMALL, embedding_size=16)), _classes(text())),
    "deberta": lambda: (hf.DebertaV2ForSequenceClassification(hf.DebertaV2Config(**SMALL)), _classes(text())),
    "gpt2": lambda: (hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=V, n_embd=16, n_layer=2, n_head=2, n_positions=32, bos_token_id=1, eos_token_id=2)), language()),
    "gpt-neox": lambda: (hf.GPTNeoXForCausalLM(hf.GPTNeoXConfig(**SMALL, bos_token_id=1, eos_token_id=2)), language()),
    "opt": lambda: (
        hf.OPTForCausalLM(hf.OPTConfig(vocab_size=V, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, ffn_dim=32, word_embed_proj_dim=16, max_position_embeddings=32, pad_token_id=1)),
        language(1),
    ),
    "llama": lambda: (hf.LlamaForCausalLM(hf.LlamaConfig(**LLAMA, bos_token_id=1, eos_token_id=2)), language()),
    "mistral": lambda: (hf.MistralForCausalLM(hf.MistralConfig(**LLAMA, bos_token_id=1, eos_token_id=2)), language()),
    "qwen2": lambda: (hf.Qwen2ForCausalLM(hf.Qwen2Config(**{k: v for k, v in LLAMA.items() if k != "head_dim"}, bos_token_id=1, eos_token_id=2)), language()),
    "gemma": lambda: (hf.GemmaForCausalLM(hf.GemmaConfig(**LLAMA, bos_token_id=1, eos_token_id=2)), language()),
    "phi": lambda: (hf.PhiForCausalLM(hf.PhiConfig(**SMALL, bos_token_id=1, eos_token_id=2)), language()),
    "t5": lambda: (hf.T5ForConditionalGeneration(hf.T5Config(**T5)), pair()),
    "bart": lambda: (hf.BartForConditionalGeneration(hf.BartConfig(**BART)), pair(1)),
    "marian": lambda: (hf.MarianMTModel(hf.MarianConfig(**BART)), pair(1)),
    "gptj": lambda: (hf.GPTJForCausalLM(hf.GPTJConfig(vocab_size=V, n_embd=16, n_layer=2, n_head=2, n_positions=32, rotary_dim=4, bos_token_id=1, eos_token_id=2)), language()),
    "convbert": lambda: (hf.ConvBertForSequenceClassification(hf.ConvBertConfig(**SMALL, head_ratio=1, embedding_size=16)), _classes(text())),
    "nystromformer": lambda: (hf.NystromformerForSequenceClassification(hf.NystromformerConfig(**SMALL, num_landmarks=8, segment_means_seq_len=8)), _classes(text())),
    "funnel": lambda: (
        hf.FunnelForSequenceClassification(hf.FunnelConfig(vocab_size=V, block_sizes=[1, 1], d_model=16, n_head=2, d_head=8, d_inner=32, num_decoder_layers=1)),
        _classes(text()),
    ),
    "switch": lambda: (  # its experts draw dropout for as many tokens as they are given
        hf.SwitchTransformersForConditionalGeneration(hf.SwitchTransformersConfig(
            **T5, num_experts=2, num_sparse_encoder_layers=1, num_sparse_decoder_layers=1, expert_capacity=64)),
        pair(),
    ),
    "wav2vec2": lambda: (
        hf.Wav2Vec2ForSequenceClassification(hf.Wav2Vec2Config(
            hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, conv_dim=(16, 16), conv_stride=(4, 2), conv_kernel=(8, 4),
            num_feat_extract_layers=2, num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2, feat_extract_norm="layer", do_stable_layer_norm=True)),
        waves(),
    ),
    "vit": lambda: (hf.ViTForImageClassification(hf.ViTConfig(**VIT)), images()),
    "deit": lambda: (hf.DeiTForImageClassification(hf.DeiTConfig(**VIT)), images()),
    "resnet": lambda: (
        hf.ResNetForImageClassification(hf.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], num_labels=3, layer_type="basic")),
        {**images(), "pixel_values": torch.randn(B, 3, 32, 32)},
    ),
    "convnext": lambda: (
        hf.ConvNextForImageClassification(hf.ConvNextConfig(hidden_sizes=[8, 16], depths=[1, 1], num_stages=2, num_labels=3, patch_size=2)),
        {**images(), "pixel_values": torch.randn(B, 3, 32, 32)},
    ),
    "deepseek-sparse": lambda: (  # what chooses the keys is computed without gradient
        hf.DeepseekV32ForCausalLM(hf.DeepseekV32Config(
            **{k: v for k, v in LLAMA.items() if k not in ("head_dim", "num_key_value_heads")}, num_key_value_heads=2, kv_lora_rank=8, q_lora_rank=8, qk_rope_head_dim=4, qk_nope_head_dim=4, v_head_dim=8,
            n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, n_shared_experts=1, n_group=1, topk_group=1, first_k_dense_replace=1,
            index_n_heads=2, index_head_dim=8)),
        language(),
    ),
    "layoutlm3": lambda: (  # its tables of distances are not trained
        hf.LayoutLMv3ForSequenceClassification(hf.LayoutLMv3Config(
            **{**SMALL, "hidden_size": 24}, max_2d_position_embeddings=64, coordinate_size=4, shape_size=4, input_size=16, patch_size=8, pad_token_id=0, num_labels=2)),
        {**_classes(text()), "bbox": torch.tensor([2, 3, 9, 8]).expand(B, L, 4), "pixel_values": torch.randn(B, 3, 16, 16)},
    ),
    "clip": lambda: (
        hf.CLIPModel(hf.CLIPConfig(
            text_config={**SMALL, "eos_token_id": 2, "bos_token_id": 1, "pad_token_id": 0},
            vision_config={k: v for k, v in VIT.items() if k != "num_labels"}, projection_dim=8)),
        {**text(), "pixel_values": torch.randn(B, 3, 16, 16), "return_loss": True},
    ),
}  # fmt: skip
