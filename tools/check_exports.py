#!/usr/bin/env python3
"""Reads what Trireme wrote with other people's software: exported weights, and event files of TensorBoard.

  check_exports.py FOLDER --logits FILE    loads the exported model (config.json, *.safetensors) in transformers and
                                           compares its logits with FILE: tensors "tokens" and "logits"
  check_exports.py FOLDER_OR_FILE …        prints the tags, points, first and last values of event files
It needs torch, transformers, safetensors and tensorboard, in an environment of its own. Exits with 1 where logits
differ by more than the tolerance, or where there is nothing to read.
"""

import argparse
import pathlib
import sys


def check_model(folder, logits_file, tolerance):
    import torch
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM

    model, report = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    wrong = {kind: names for kind, names in report.items() if names and kind != "error_msgs"}
    print(f"{folder}: {type(model).__name__}, {sum(p.numel() for p in model.parameters()):,} parameters")
    for kind, names in wrong.items():
        print(f"  {kind}: {', '.join(sorted(map(str, names)))}")
    if logits_file is None:
        return not wrong
    expected = load_file(logits_file)
    with torch.no_grad():
        logits = model.eval()(expected["tokens"].long()).logits.float()
    difference = (logits - expected["logits"].float()).abs().max().item()
    agrees = difference <= tolerance
    verdict = "agree" if agrees else "DIFFER"
    print(f"  logits {verdict}: largest difference {difference:.2e} (tolerance {tolerance:.0e})")
    return agrees and not wrong


def check_events(path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(path), size_guidance={"scalars": 0})
    events.Reload()
    tags = events.Tags()["scalars"]
    print(f"{path}: {len(tags)} tags")
    for tag in tags:
        points = events.Scalars(tag)
        ends = "   ".join(f"step {point.step}: {point.value:.6g}" for point in (points[0], points[-1]))
        print(f"  {tag:<32} {len(points):>6} points   {ends}")
    return bool(tags)


def event_folders(path):
    if path.is_file():
        return [path]
    return sorted({file.parent for file in path.rglob("*tfevents*")})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=pathlib.Path, metavar="FOLDER_OR_FILE")
    parser.add_argument("--logits", type=pathlib.Path, help="safetensors with tokens and the logits to compare with")
    parser.add_argument("--tolerance", type=float, default=1e-4)
    arguments = parser.parse_args()

    ok = True
    for path in arguments.paths:
        found = False
        if (path / "config.json").is_file():
            ok &= check_model(path, arguments.logits, arguments.tolerance)
            found = True
        for events in event_folders(path):
            ok &= check_events(events)
            found = True
        if not found:
            print(f"{path}: neither an exported model (config.json) nor event files", file=sys.stderr)
            ok = False
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
