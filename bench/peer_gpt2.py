"""What PyTorch itself reaches on one GPU: training of a GPT-2, as it comes and compiled.

The same sizes, batch and precision as `trireme bench train --device cuda`: bfloat16 by autocast, float32 weights,
fused AdamW, clipping. Prints one JSON object a line. Exit code 42: this Python has no PyTorch.
"""
import argparse
import json
import statistics
import sys
import time

try:
    import torch
    from torch import nn
    from torch.nn import functional
except ImportError:
    sys.exit(42)


class Block(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(hidden)
        self.mlp_norm = nn.LayerNorm(hidden)
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.output = nn.Linear(hidden, hidden)
        self.up = nn.Linear(hidden, 4 * hidden)
        self.down = nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                   for part in self.qkv(self.attention_norm(x)).chunk(3, -1))
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.output(seen.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.mlp_norm(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, layers, hidden, heads, seq, vocab):
        super().__init__()
        self.token = nn.Embedding(vocab, hidden)
        self.position = nn.Embedding(seq, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, vocab, bias=False)
        self.head.weight = self.token.weight

    def forward(self, tokens, targets):
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return functional.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


def measure(sizes, batch, steps, warmup, is_compiled):
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    model = Gpt2(**sizes).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    forward = torch.compile(model) if is_compiled else model
    data = [torch.randint(0, sizes["vocab"], (batch, sizes["seq"] + 1), device="cuda") for _ in range(4)]
    torch.cuda.reset_peak_memory_stats()
    times = []
    for step in range(warmup + steps):
        torch.cuda.synchronize()
        start = time.perf_counter()
        tokens = data[step % len(data)]
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = forward(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    seconds = statistics.median(times[warmup:])
    print(json.dumps({"peer": "compiled" if is_compiled else "eager", "version": torch.__version__,
                      "parameters": sum(p.numel() for p in model.parameters()), "batch": batch,
                      "step_ms": 1000 * seconds, "tokens_per_second": batch * sizes["seq"] / seconds,
                      "peak_memory_bytes": torch.cuda.max_memory_allocated()}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in (("layers", 12), ("hidden", 768), ("heads", 12), ("seq", 1024), ("vocab", 50304), ("batch", 64),
                        ("steps", 15), ("warmup", 5)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--mode", choices=("eager", "compiled", "both"), default="both")
    given = parser.parse_args()
    sizes = {name: getattr(given, name) for name in ("layers", "hidden", "heads", "seq", "vocab")}
    for mode in ("eager", "compiled"):
        if given.mode in (mode, "both"):
            measure(sizes, given.batch, given.steps, given.warmup, mode == "compiled")
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
