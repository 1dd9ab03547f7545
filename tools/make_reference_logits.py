#!/usr/bin/env python3
"""Makes tests/data/{gpt2,llama}_tiny_{weights,logits}.safetensors: random weights, and the logits of `transformers`.

Run it in an environment of its own; nothing else here needs these packages:
  python3 -m venv /tmp/hf && /tmp/hf/bin/pip install torch transformers safetensors numpy
  /tmp/hf/bin/python tools/make_reference_logits.py
The seed fixes weights and tokens. *_weights holds the weights as `transformers` names them, *_logits the tokens
[samples, seq] and the logits [samples, seq, vocab].
"""

import pathlib

import torch
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

DATA = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data"
SAMPLES, SEQ, VOCAB, SEED = 2, 16, 97, 20260101
NO_TOKENS = {"bos_token_id": None, "eos_token_id": None}  # the usual ones lie outside so small a vocabulary

MODELS = {
    "gpt2_tiny": (
        GPT2LMHeadModel,
        GPT2Config(vocab_size=VOCAB, n_positions=24, n_embd=48, n_layer=2, n_head=4, n_inner=96, **NO_TOKENS),
    ),
    "llama_tiny": (
        LlamaForCausalLM,
        LlamaConfig(
            vocab_size=VOCAB,
            max_position_embeddings=24,
            hidden_size=48,
            intermediate_size=80,
            num_hidden_layers=2,
            num_attention_heads=6,
            num_key_value_heads=2,
            rms_norm_eps=1e-5,
            tie_word_embeddings=False,
            **NO_TOKENS,
        ),
    ),
}


def main():
    DATA.mkdir(parents=True, exist_ok=True)
    for name, (kind, config) in MODELS.items():
        generator = torch.Generator().manual_seed(SEED)
        model = kind(config).eval()
        with torch.no_grad():
            # Larger than at the start of training, so that every part of the model shows in the logits; norms around 1.
            for key, parameter in model.named_parameters():
                values = torch.randn(parameter.shape, generator=generator) * 0.25
                parameter.copy_(values + 1 if is_norm_weight(key) else values)
            tokens = torch.randint(VOCAB, (SAMPLES, SEQ), generator=generator)
            logits = model(tokens).logits.float()
        state = {key: value.contiguous().clone() for key, value in model.state_dict().items()}
        if config.tie_word_embeddings:
            del state["lm_head.weight"]
        save_file(state, DATA / f"{name}_weights.safetensors", metadata={"format": "pt"})
        save_file({"tokens": tokens, "logits": logits.contiguous()}, DATA / f"{name}_logits.safetensors")
        num_parameters = sum(parameter.numel() for parameter in model.parameters())
        print(f"{name}: {num_parameters:,} parameters, logits deviate by {logits.std():.2f}")


def is_norm_weight(key):
    return key.endswith(".weight") and any(part in key for part in ("ln_", "norm"))


if __name__ == "__main__":
    main()
