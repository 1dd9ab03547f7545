"""Two hosts that are network namespaces, with a cable between them whose speed can be set. Needs root, and sch_tbf."""
import contextlib
import json
import os
import signal
import subprocess
import sys

HOSTS = [f"trireme-bench-{os.getpid()}-{end}" for end in "ab"]
ADDRESSES = ["10.77.0.1", "10.77.0.2"]
PORT = "29172"


def command(*words, check=True):
    return subprocess.run(words, check=check, capture_output=True, text=True, timeout=20).stdout


def make_hosts(rate):
    for host in HOSTS:
        command("ip", "netns", "add", host)
    command("ip", "link", "add", "cable", "netns", HOSTS[0], "type", "veth", "peer", "name", "cable", "netns", HOSTS[1])
    for host, address in zip(HOSTS, ADDRESSES):
        command("ip", "-n", host, "addr", "add", f"{address}/24", "dev", "cable")
        command("ip", "-n", host, "link", "set", "cable", "up")
        command("ip", "-n", host, "link", "set", "lo", "up")
        if rate:
            command("tc", "-n", host, "qdisc", "add", "dev", "cable", "root", "tbf", "rate", rate, "burst", "64kb",
                    "latency", "50ms")


def remove_hosts():
    for host in HOSTS:
        for pid in command("ip", "netns", "pids", host, check=False).split():
            os.kill(int(pid), signal.SIGKILL)
        command("ip", "netns", "del", host, check=False)


@contextlib.contextmanager
def joined(rate):
    """The hosts, as long as the block runs. `rate` is as tc writes it; empty: as fast as it goes."""
    if os.geteuid() != 0:
        sys.exit("skipped: network namespaces need root")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))  # so that what follows `finally` happens
    try:
        make_hosts(rate)
        yield
    finally:
        remove_hosts()


def bytes_sent():
    links = [json.loads(command("ip", "-n", host, "-s", "-j", "link", "show", "cable")) for host in HOSTS]
    return sum(link[0]["stats64"]["tx"]["bytes"] for link in links)


def start_workers(program, words, folder):
    """`trireme train`, a worker on each host; what it says goes to worker-0.txt and worker-1.txt."""
    processes = []
    for rank, host in enumerate(HOSTS):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("TRIREME_")}
        environment |= {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
                        "MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": PORT, "TRIREME_TOKEN": HOSTS[0]}
        with open(os.path.join(folder, f"worker-{rank}.txt"), "w") as output:
            processes.append(subprocess.Popen(["ip", "netns", "exec", host, program, "train", *words], env=environment,
                                              stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=folder))
    return processes
