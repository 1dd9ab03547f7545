#!/usr/bin/env python3
"""The planner against this machine: for 12 models on 2 and 4 processes, every legal layout is measured.

    trireme bench comm --write-cluster mine.json --ranks 2,4
    trireme bench train --write-cluster mine.json
    bench/planner_choice.py --cluster mine.json [--only gpt] [--tries 3] [--repeats 3] [--markdown FILE]

A layout is dp x tp x pp; micro-batch, schedule (1F1B) and ZeRO stage (0) are the same for all, so that the planner
chooses among exactly what is measured. Layouts of a model take turns (trireme bench train --layouts), so that what else
the machine does meets all of them. Printed for each: the best layout, the planner's, how much slower it is, and the
step time and peak memory that it predicted, the latter beside the fullest worker's. TRIREME names the program (default:
build/release/bin/trireme).
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

TRIREME = os.environ.get("TRIREME", "build/release/bin/trireme")


def gpt(layers, hidden, seq, batch, micro, vocab=256, heads=4):
    return {"model.kind": "gpt2", "model.layers": layers, "model.hidden": hidden, "model.heads": heads,
            "model.seq": seq, "model.vocab": vocab, "train.global_batch": batch, "train.micro_batch": micro}


MODELS = {
    "tiny gpt": gpt(2, 64, 64, 16, 2),
    "small gpt": gpt(4, 128, 64, 32, 4),
    "gpt": gpt(4, 256, 128, 16, 2),
    "wide gpt": gpt(2, 512, 64, 16, 2, heads=8),
    "wider gpt": gpt(2, 768, 32, 8, 2, heads=12),
    "deep gpt": gpt(16, 64, 64, 16, 2),
    "deeper gpt": gpt(12, 128, 64, 16, 2),
    "big vocabulary": gpt(2, 128, 64, 16, 2, vocab=16384),
    "long sequences": gpt(2, 128, 512, 8, 1),
    "llama": {**gpt(4, 128, 128, 16, 2), "model.kind": "llama", "model.kv_heads": 4, "model.ffn": 384},
    "wide perceptron": {"model.kind": "mlp", "model.layers": 4, "model.hidden": 1024, "train.global_batch": 128,
                        "train.micro_batch": 16},
    "convolutions": {"model.kind": "resnet", "model.depth": 18, "model.image": 28, "model.channels": 1,
                     "train.global_batch": 16, "train.micro_batch": 2},
}
FIXED = {"parallel.zero": 0, "parallel.schedule": "1f1b", "parallel.sequence": "false", "optimizer.warmup_steps": 0}


def words(keys):
    return [f"--{key}={value}" for key, value in keys.items()]


def run(*arguments):
    result = subprocess.run([TRIREME, *arguments], capture_output=True, text=True, timeout=1200)
    if result.returncode != 0:
        return None, result.stderr.strip().split("\n")[0]
    return json.loads(result.stdout), ""


def degrees(count):
    return [(dp, tp, count // dp // tp) for dp in range(1, count + 1) if count % dp == 0
            for tp in range(1, count // dp + 1) if count // dp % tp == 0]


def text_of(layout):
    return ",".join(f"{name}={degree}" for name, degree in zip(("dp", "tp", "pp"), layout))


def legal_layouts(keys, count):
    found = []
    for layout in degrees(count):
        shown = subprocess.run([TRIREME, "bench", "train", *words(keys), "--layouts", text_of(layout), "--steps", "1",
                                "--warmup", "1", "--repeats", "1", "--json"], capture_output=True, text=True)
        if shown.returncode == 0:
            found.append(layout)
    return found


def measure(name, keys, count, arguments):
    tries = ["--try", str(arguments.tries)] if arguments.tries else []
    plan, why = run("plan", *words({**keys, **FIXED}), "--cluster", arguments.cluster, "--gpus", str(count), *tries,
                    "--json")
    if plan is None:
        return {"model": name, "processes": count, "error": why}
    chosen = tuple(plan["layout"][axis] for axis in ("dp", "tp", "pp"))
    layouts = legal_layouts({**keys, **FIXED}, count)
    said, why = run("bench", "train", *words({**keys, **FIXED}), "--layouts", ";".join(map(text_of, layouts)),
                    "--steps", str(arguments.steps), "--warmup", "2", "--repeats", str(arguments.repeats), "--json")
    if said is None:
        return {"model": name, "processes": count, "error": why}
    times = {layout: min(row["each_step_ms"]) for layout, row in zip(layouts, said["results"])}
    memory = {layout: row["peak_memory_bytes"] for layout, row in zip(layouts, said["results"])}
    best = min(times, key=times.get)
    row = {"model": name, "processes": count, "layouts": len(layouts), "best": best, "chosen": chosen,
           "best_ms": times[best], "predicted_ms": plan["step_seconds"] * 1e3,
           "times": {text_of(layout): round(ms, 2) for layout, ms in times.items()},
           "memories": {text_of(layout): bytes for layout, bytes in memory.items()}}
    if chosen in times:
        row |= {"chosen_ms": times[chosen], "loss": times[chosen] / times[best] - 1,
                "time_error": plan["step_seconds"] * 1e3 / times[chosen] - 1, "memory": memory[chosen]}
        row["memory_error"] = plan["memory_bytes_per_gpu"] / memory[chosen] - 1
    else:
        row["error"] = f"the planner chose {text_of(chosen)}, which cannot run"
    return row


def table(rows):
    lines = ["| model | processes | layouts | best | ms | planned | ms | slower | predicted ms | off by | memory off by |",
             "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for r in rows:
        if "error" in r:
            lines.append(f"| {r['model']} | {r['processes']} | {r['error']} |")
            continue
        lines.append(f"| {r['model']} | {r['processes']} | {r['layouts']} | {text_of(r['best'])} | {r['best_ms']:.1f} | "
                     f"{text_of(r['chosen'])} | {r['chosen_ms']:.1f} | {100 * r['loss']:.1f} % | "
                     f"{r['predicted_ms']:.1f} | {100 * r['time_error']:+.1f} % | "
                     f"{100 * r['memory_error']:+.1f} % |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--processes", default="2,4")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--tries", type=int, default=0, help="trireme plan --try N (default: none)")
    parser.add_argument("--json", help="a file for all numbers")
    parser.add_argument("--markdown", help="a file for the table")
    arguments = parser.parse_args()
    rows = []
    for name, keys in MODELS.items():
        if arguments.only not in name:
            continue
        for count in map(int, arguments.processes.split(",")):
            rows.append(measure(name, keys, count, arguments))
            print(table(rows).split("\n")[-1], file=sys.stderr, flush=True)
    print(table(rows))
    good = [r for r in rows if "error" not in r]
    if good:
        near = sum(r["loss"] <= 0.05 for r in good)
        memory = [r["memory_error"] for r in good]
        print(f"\nwithin 5 % of the best in {near} of {len(rows)}; step time off by "
              f"{100 * statistics.mean(abs(r['time_error']) for r in good):.1f} % on average; peak memory by "
              f"{100 * statistics.mean(map(abs, memory)):.1f} %, at most {-100 * min(0, *memory):.1f} % too low")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(rows, file, indent=1)
    if arguments.markdown:
        with open(arguments.markdown, "w") as file:
            file.write(table(rows) + "\n")


if __name__ == "__main__":
    main()
