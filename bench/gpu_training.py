#!/usr/bin/env python3
"""Training of a GPT-2 on one GPU, ours and PyTorch's in turn, and where a step's time goes.

  bench/gpu_training.py [--bin build/cuda/bin] [--size 124m] [--batch 64] [--repeats 3] [--steps 20] [--peak-tflops X]

Each repeat runs `trireme bench train --device cuda` (deterministic, then fastest), then peer_gpt2.py as PyTorch comes
and compiled, with the same sizes, batch, steps and warm-up. Figures are medians over the repeats. PyTorch is that of
TRIREME_PYTHON, or of this Python; what fails is left out, and the last line says why. Kernels are those of two more
steps of ours under the profiler, by what they are for.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

SIZES = {"124m": (12, 768, 12), "1.5b": (48, 1600, 25)}
SEQ, VOCAB, WARMUP = 1024, 50304, 5
PEER = os.path.join(os.path.dirname(os.path.realpath(__file__)), "peer_gpt2.py")
# Parts of kernels' names in lower case; the first that fits counts: attention has matrix products inside, matrix
# products have activations, and the optimizer has a norm.
CLASSES = [
    ("communication", "nccl combine_kernel ::spin("),
    ("attention", "sdpa cudnn::fusion flash fmha"),
    ("optimizer", "update_kernel< block_sums_kernel tree_kernel multi_tensor_apply"),
    ("matrix products", "nvjet gemm gemv xmma cutlass splitkreduce"),
    ("8-bit copies", "quantise_kernel update_scales measure_kernel"),
    ("loss", "cross_entropy sum_values nll_loss softmax"),
    ("norms", "norm_forward norm_backward layer_norm batch_norm"),
    ("column sums and biases", "chunk_sums partial_sums add_bias_kernel"),
    ("embedding", "look_up sum_chunk join_chunks sum_positions number_rows radix_sort embedding"),
    ("activations", "::map< swiglu rotate_pairs gelu silu"),
    ("copies and casts", "memcpy memset copy convert_elements fillfunctor"),
]


def class_of(kernel):
    lower = kernel.lower()
    return next((name for name, parts in CLASSES if any(part in lower for part in parts.split())), "rest")


def ours(given):
    batch = given.batch
    words = ["--model", f"gpt2-{given.size}", f"--model.vocab={VOCAB}", f"--train.global_batch={batch}",
             f"--train.micro_batch={batch}", "--train.leaves=1", "--precision.compute=bfloat16", "--train.clip=1"]
    if given.peak_tflops:
        words += ["--peak-tflops", str(given.peak_tflops)]
    done = subprocess.run([os.path.join(given.bin, "trireme"), "bench", "train", "--device", "cuda", "--repeats", "1",
                           "--steps", str(given.steps), "--warmup", str(WARMUP), "--json", *words],
                          capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return json.loads(done.stdout)["results"]


def torch(given, shape, mode):
    """What the script says, or why it says nothing."""
    python = os.environ.get("TRIREME_PYTHON") or sys.executable
    sizes = dict(zip(("layers", "hidden", "heads"), shape), seq=SEQ, vocab=VOCAB, batch=given.batch, steps=given.steps,
                 warmup=WARMUP)
    words = [word for name, value in sizes.items() for word in (f"--{name}", str(value))]
    done = subprocess.run([python, PEER, "--mode", mode, *words], capture_output=True, text=True)
    if done.returncode == 42:
        return f"{python} has no PyTorch: pip install torch==2.11.0, or name another with TRIREME_PYTHON"
    said = done.stdout.strip().splitlines()  # compilers may have spoken before
    if done.returncode != 0 or not said:
        return (done.stderr.strip().splitlines() or [f"it said nothing, exit code {done.returncode}"])[-1]
    return json.loads(said[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="build/cuda/bin")
    parser.add_argument("--size", choices=SIZES, default="124m")
    for name, value in (("batch", 64), ("repeats", 3), ("steps", 20)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--peak-tflops", type=float)
    given = parser.parse_args()
    steps, memory, facts, problem = {}, {}, {}, ""
    for _ in range(given.repeats):
        for result in ours(given):
            name = result["layout"]
            facts[name] = result
            steps.setdefault(name, []).append(result["step_ms"])
            memory[name] = max(memory.get(name, 0), result["device_memory_bytes"])
        for mode in ("eager", "compiled"):
            said = problem or torch(given, SIZES[given.size], mode)
            if isinstance(said, str):
                problem = said
                continue
            name = f"PyTorch {mode}"
            facts[name] = {}
            steps.setdefault(name, []).append(said["step_ms"])
            memory[name] = max(memory.get(name, 0), said["peak_memory_bytes"])
    rows = {name: statistics.median(values) for name, values in steps.items()}
    peers = [name for name in rows if name.startswith("PyTorch")]
    flops = next(iter(facts.values()))["flops_per_step"]
    print(f"GPT-2 {given.size}, batch {given.batch}, bfloat16: medians of {given.repeats} repeats in turn")
    heads = "".join(f"{'by ' + peer.split()[1]:>13}" for peer in peers)
    print(f"{'':18}{'tok/s':>10}{'step ms':>10}{'TFLOP/s':>10}{'GPU memory':>12}{heads}")
    for name, step_ms in rows.items():
        ratios = "".join(f"{rows[peer] / step_ms:>12.2f}x" for peer in peers)
        print(f"{name:18}{1000 * given.batch * SEQ / step_ms:>10,.0f}{step_ms:>10.1f}{flops / step_ms / 1e9:>10.1f}"
              f"{memory[name] / 2**30:>8.1f} GiB{ratios}")
    for name, result in facts.items():
        kernels = result.get("kernels_us")
        if not kernels:
            continue
        by_class = {}
        for kernel, us in kernels.items():
            by_class[class_of(kernel)] = by_class.get(class_of(kernel), 0) + us / 1000
        print(f"\nkernels of a step, {name}: ms, share")
        for part, ms in sorted(by_class.items(), key=lambda item: -item[1]):
            print(f"  {part:24}{ms:>8.1f}{100 * ms / sum(by_class.values()):>6.0f} %")
    if problem:
        print(f"\nPyTorch is left out: {problem}")


if __name__ == "__main__":
    main()
