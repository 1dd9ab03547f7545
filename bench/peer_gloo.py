"""Gloo's side of `trireme bench comm --compare gloo`, through PyTorch: measures on command, as our own ranks do.

Started once a rank with RANK, WORLD_SIZE and MASTER_PORT set, and on rank 0 PEER_LISTEN_FD, a socket that already
listens there. Rank 0 reads "OPERATION BYTES ROUNDS" lines and answers "ok us us ...", one time for each round, or
"error ..."; at the end of its input all ranks end. Idle ranks sleep.
"""
import datetime
import os
import sys
import time

import torch
import torch.distributed as dist

WARM_UPS = 3
OPERATIONS = ["all-reduce", "reduce-scatter", "all-gather", "broadcast", "all-to-all"]
PATIENCE = datetime.timedelta(hours=24)


def join():
    rank, size, port = (int(os.environ[name]) for name in ["RANK", "WORLD_SIZE", "MASTER_PORT"])
    listener = {"master_listen_fd": int(os.environ["PEER_LISTEN_FD"])} if rank == 0 else {}
    store = dist.TCPStore("127.0.0.1", port, size, rank == 0, timeout=PATIENCE, **listener)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=PATIENCE)
    return rank, size


def make(operation, num_bytes, rank, size):
    """What to fill, with what; the operation; what to look at, and what should be there."""
    count = num_bytes // 4
    block = max(count // size, 1)
    whole = block * size
    if operation == "all-reduce":
        data = torch.zeros(count)
        return data, 1, lambda: dist.all_reduce(data), data, size
    if operation == "reduce-scatter":
        data, out = torch.zeros(whole), torch.zeros(block)
        return data, 1, lambda: dist.reduce_scatter_tensor(out, data), out, size
    if operation == "all-gather":
        data, out = torch.zeros(block), torch.zeros(whole)
        return data, 1, lambda: dist.all_gather_into_tensor(out, data), out, 1
    if operation == "broadcast":
        data = torch.zeros(count)
        return data, 1 if rank == 0 else 0, lambda: dist.broadcast(data, 0), data, 1
    data, out = torch.zeros(whole), torch.zeros(whole)
    return data, 1, lambda: dist.all_to_all_single(out, data), out, 1


def measure(operation, num_bytes, rounds, rank, size):
    data, value, perform, result, expected = make(operation, num_bytes, rank, size)
    times = []
    for i in range(rounds + WARM_UPS):
        data.fill_(value)
        dist.barrier()
        start = time.perf_counter()
        perform()
        stop = time.perf_counter()
        if i >= WARM_UPS:
            times.append(f"{(stop - start) * 1e6:.3f}")
    if not bool((result == expected).all()):
        return "error the result is wrong"
    return "ok " + " ".join(times)


def next_command(rank):
    """(operation, bytes, rounds), the same on all ranks; operation -1 is the end."""
    command = torch.full((3,), -1, dtype=torch.int64)
    if rank == 0:
        words = sys.stdin.readline().split()
        if len(words) == 3 and words[0] in OPERATIONS:
            command = torch.tensor([OPERATIONS.index(words[0]), int(words[1]), int(words[2])])
    dist.broadcast(command, 0)
    return command.tolist()


def main():
    torch.set_num_threads(1)
    rank, size = join()
    if rank == 0:
        print(f"ready PyTorch {torch.__version__}", flush=True)
    while True:
        operation, num_bytes, rounds = next_command(rank)
        if operation < 0:
            break
        try:
            answer = measure(OPERATIONS[operation], num_bytes, rounds, rank, size)
        except RuntimeError as error:  # what Gloo does not offer it refuses on all ranks alike
            answer = "error " + str(error).splitlines()[0]
        if rank == 0:
            print(answer, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
