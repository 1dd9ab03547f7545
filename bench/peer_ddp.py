"""PyTorch's side of `trireme bench train --compare ddp`: the same GPT-2 shape, trained by DistributedDataParallel.

One single-threaded process a rank, Gloo, float32, fused AdamW, tied embeddings, learned positions. Before each step
comes a barrier, which is not counted. Rank 0 prints one line of JSON. `trireme bench train` starts the ranks; by hand:

  torchrun --nproc-per-node 2 bench/peer_ddp.py --mode ddp
  torchrun --nproc-per-node 2 bench/peer_ddp.py --mode pp      layers over the ranks, in Schedule1F1B; embeddings untied
  python bench/peer_ddp.py --mode single
"""
import argparse
import json
import os
import statistics
import sys
import time

NO_TORCH = 42  # the exit code by which `trireme bench train` knows what is missing

try:
    import torch
    import torch.distributed as dist
    import torch.nn as nn
    import torch.nn.functional as functional
except ImportError:
    sys.exit(NO_TORCH)


class Layer(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(hidden)
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.merge = nn.Linear(hidden, hidden)
        self.mlp_norm = nn.LayerNorm(hidden)
        self.widen = nn.Linear(hidden, 4 * hidden)
        self.narrow = nn.Linear(4 * hidden, hidden)

    def attend(self, x):
        samples, tokens, hidden = x.shape
        per_head = self.qkv(x).view(samples, tokens, 3, self.heads, hidden // self.heads)
        query, key, value = (part.transpose(1, 2) for part in per_head.unbind(2))
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.merge(mixed.transpose(1, 2).reshape(samples, tokens, hidden))

    def forward(self, x):
        x = x + self.attend(self.attention_norm(x))
        wide = functional.gelu(self.widen(self.mlp_norm(x)), approximate="tanh")
        return x + self.narrow(wide)


class Gpt2(nn.Module):
    """Layers `first` to `last` of it, all unless told. Those of one end alone have weights of their own there."""

    def __init__(self, options, first=0, last=None):
        super().__init__()
        last = options.layers if last is None else last
        self.has_start, self.has_end = first == 0, last == options.layers
        if self.has_start:
            self.words = nn.Embedding(options.vocab, options.hidden)
            self.positions = nn.Embedding(options.seq, options.hidden)
        self.layers = nn.Sequential(*(Layer(options.hidden, options.heads) for _ in range(first, last)))
        if self.has_end:
            self.last_norm = nn.LayerNorm(options.hidden)
            self.head = nn.Linear(options.hidden, options.vocab, bias=False)
        if self.has_start and self.has_end:
            self.head.weight = self.words.weight

    def forward(self, x):
        if self.has_start:
            x = self.words(x) + self.positions(torch.arange(x.shape[1]))
        x = self.layers(x)
        return self.head(self.last_norm(x)) if self.has_end else x


def loss_of(logits, targets):
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mode", choices=["ddp", "pp", "single"], default="ddp")
    for name, default in {"layers": 4, "hidden": 256, "heads": 8, "seq": 128, "vocab": 512, "batch": 16, "steps": 20,
                          "warmup": 5, "micro_batches": 4}.items():
        parser.add_argument("--" + name.replace("_", "-"), type=int, default=default)
    return parser.parse_args()


def join(mode):
    """Our launcher's environment, in which rank 0 inherits a socket that listens already, or torchrun's."""
    if mode == "single":
        return 0, 1
    if "TRIREME_RANK" in os.environ:
        rank, size = int(os.environ["TRIREME_RANK"]), int(os.environ["TRIREME_WORLD_SIZE"])
        host, port = os.environ["TRIREME_MASTER"].rsplit(":", 1)
        listener = {"master_listen_fd": int(os.environ["TRIREME_LISTEN_FD"])} if rank == 0 else {}
        store = dist.TCPStore(host, int(port), size, rank == 0, **listener)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    else:
        dist.init_process_group("gloo")
    return dist.get_rank(), dist.get_world_size()


def share_of_batch(options, rank, size):
    """This rank's inputs and targets; every rank draws the whole batch."""
    torch.manual_seed(1)
    tokens = torch.randint(options.vocab, (options.batch, options.seq + 1))
    mine = tokens.chunk(size)[rank]
    return mine[:, :-1].contiguous(), mine[:, 1:].contiguous()


def pipeline_stage(options, rank, size):
    """This rank's layers, and what computes a step with them."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B
    count = options.layers // size
    model = Gpt2(options, rank * count, (rank + 1) * count)
    stage = PipelineStage(model, rank, size, torch.device("cpu"))
    schedule = Schedule1F1B(stage, options.micro_batches, loss_fn=loss_of)
    inputs, targets = share_of_batch(options, 0, 1)

    def compute():
        if model.has_end:
            schedule.step(*([inputs] if model.has_start else []), target=targets)
        else:
            schedule.step(*([inputs] if model.has_start else []))

    return model, compute


def whole_model(options, rank, size):
    inputs, targets = share_of_batch(options, rank, size)
    model = Gpt2(options)
    if options.mode == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
    return model, lambda: loss_of(model(inputs), targets).backward()


def main():
    options = read_options()
    torch.set_num_threads(1)
    rank, size = join(options.mode)
    if options.mode == "pp" and options.layers % size != 0:
        sys.exit(f"--layers {options.layers} cannot be split over {size} ranks")
    if options.mode != "pp" and options.batch % size != 0:
        sys.exit(f"--batch {options.batch} cannot be split over {size} ranks")
    model, compute = (pipeline_stage if options.mode == "pp" else whole_model)(options, rank, size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    times = []
    for _ in range(options.warmup + options.steps):
        if options.mode != "single":
            dist.barrier()
        start = time.perf_counter()
        optimizer.zero_grad()
        compute()
        optimizer.step()
        times.append(time.perf_counter() - start)
    median = statistics.median_high(times[options.warmup:])
    if rank == 0:
        print(json.dumps({"tokens_per_second": options.batch * options.seq / median, "step_ms": 1000 * median,
                          "mode": options.mode, "ranks": size, "version": torch.__version__}), flush=True)
    if options.mode != "single":
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
