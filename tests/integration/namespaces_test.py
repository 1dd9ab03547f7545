"""Two hosts that are network namespaces joined by a cable: ranks share memory inside them and speak TCP or MPI between.

Needs root; says so and passes otherwise. Addresses exist inside the namespaces only, and everything is removed again.
"""
# ctest: timeout=240
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile

BIN = os.environ["TRIREME_BIN_DIR"]
NAME = f"trireme-{os.getpid()}"
HOSTS = [f"{NAME}-a", f"{NAME}-b"]
ADDRESSES = ["10.77.0.1", "10.77.0.2"]
PORT = 29170


def skip(why):
    print(f"skipped: {why}")
    sys.exit(0)


def ip(*words, check=True):
    return subprocess.run(["ip", *words], check=check, capture_output=True, text=True, timeout=20)


def make_hosts():
    for host in HOSTS:
        ip("netns", "add", host)
    ip("link", "add", "cable", "netns", HOSTS[0], "type", "veth", "peer", "name", "cable", "netns", HOSTS[1])
    for host, address in zip(HOSTS, ADDRESSES):
        ip("-n", host, "addr", "add", f"{address}/24", "dev", "cable")
        ip("-n", host, "link", "set", "cable", "up")
        ip("-n", host, "link", "set", "lo", "up")


def remove(hosts):
    for host in hosts:
        pids = ip("netns", "pids", host, check=False).stdout.split()
        for pid in pids:
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                pass
        ip("netns", "del", host, check=False)


def remove_stale_hosts():
    """Those of a test that was killed before it could clean up."""
    for line in ip("netns", "list", check=False).stdout.splitlines():
        match = re.match(r"trireme-(\d+)-[ab]\b", line)
        if match and not os.path.exists(f"/proc/{match[1]}"):
            remove([match[0]])


def clean_environment():
    ours = ("TRIREME_BIN_DIR", "TRIREME_BUILD_DIR", "TRIREME_SANITIZED")
    return {k: v for k, v in os.environ.items() if k in ours or not k.startswith(("TRIREME_", "OMPI_", "SLURM_"))}


def run_ranks(program, token):
    """Two ranks on each host, with torchrun's variables. Returns exit codes and everything that was printed."""
    processes = []
    for rank in range(4):
        host = rank // 2
        environment = clean_environment() | {
            "RANK": str(rank), "WORLD_SIZE": "4", "LOCAL_RANK": str(rank % 2), "LOCAL_WORLD_SIZE": "2",
            "MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": str(PORT),
        }
        if token:
            environment["TRIREME_TOKEN"] = token
        processes.append(subprocess.Popen(["ip", "netns", "exec", HOSTS[host], *program], env=environment,
                                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                          stderr=subprocess.STDOUT, text=True))
    outputs = []
    try:
        for process in processes:
            outputs.append(process.communicate(timeout=60)[0])
    finally:
        for process in processes:
            process.kill()
    return [process.returncode for process in processes], "".join(outputs)


def check(condition, what, output):
    if not condition:
        print(f"FAILED: {what}\n{output}")
        sys.exit(1)
    print(f"passed: {what}")


def check_tcp():
    codes, output = run_ranks([f"{BIN}/collectives_program", "short"], "a secret of this test")
    check(codes == [0, 0, 0, 0] and "all right: 4 ranks over shared memory + tcp" in output,
          "every collective on 2 hosts with 2 ranks each", f"exit codes {codes}\n{output}")


def check_token():
    codes, output = run_ranks([f"{BIN}/collectives_program", "short"], "")
    check(all(codes) and "needs a token" in output and "export TRIREME_TOKEN=" in output,
          "without a token it is refused, with the cure", f"exit codes {codes}\n{output}")


def check_checksum():
    """The same bits on two hosts as on one."""
    codes, output = run_ranks([f"{BIN}/checksum_program"], "a secret of this test")
    local = subprocess.run([f"{BIN}/trireme", "launch", "--nproc-per-node", "4", "--", f"{BIN}/checksum_program"],
                           env=clean_environment(), capture_output=True, text=True, timeout=60).stdout
    sums = [[word for word in text.split() if len(word) == 16] for text in (output, local)]
    check(codes == [0, 0, 0, 0] and sums[0] and sums[0] == sums[1], "the same bits as on one host", output + local)


def check_mpi(folder):
    if not shutil.which("mpirun"):
        print("skipped: MPI between the hosts: no mpirun here (Debian: apt-get install openmpi-bin)")
        return
    if not os.path.exists(f"{BIN}/../lib/libtrireme_mpi.so"):
        print("skipped: MPI between the hosts: this build has no MPI")
        return
    # mpirun takes hosts by their names, so that each namespace needs a name of its own, too.
    agent = os.path.join(folder, "agent")
    with open(agent, "w") as file:
        file.write(f"""#!/bin/sh
# Called like ssh: agent HOST COMMAND …
shift
exec ip netns exec {HOSTS[1]} unshare --uts sh -c "hostname {HOSTS[1]}; $*"
""")
    os.chmod(agent, stat.S_IRWXU)
    mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none",
              "--mca", "plm_rsh_agent", agent, "--mca", "plm", "rsh", "--mca", "orte_keep_fqdn_hostnames", "1",
              "--mca", "oob_tcp_if_include", "10.77.0.0/24", "--mca", "btl_tcp_if_include", "10.77.0.0/24",
              "--mca", "btl", "tcp,self,vader", "--mca", "pml", "ob1",
              "--host", f"{ADDRESSES[0]}:2,{ADDRESSES[1]}:2", "-np", "4"]
    for variables, transport in ((["-x", "TRIREME_TRANSPORT=mpi"], "mpi"), ([], "shared memory + tcp")):
        command = ["ip", "netns", "exec", HOSTS[0], "unshare", "--uts", "sh", "-c",
                   f'hostname {HOSTS[0]}; exec timeout -k 5 60 "$0" "$@"',
                   *mpirun, *variables, f"{BIN}/collectives_program", "short"]
        result = subprocess.run(command, env=clean_environment() | {"TMPDIR": folder}, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=90)
        check(result.returncode == 0 and f"all right: 4 ranks over {transport}\n" in result.stdout,
              f"every collective under mpirun on 2 hosts over {transport}", f"{result.returncode}\n{result.stdout}")


def main():
    if os.geteuid() != 0:
        skip("network namespaces need root")
    if not shutil.which("ip"):
        skip("no ip here (Debian: apt-get install iproute2)")
    if ip("netns", "add", NAME, check=False).returncode != 0:
        skip("this system does not allow network namespaces")
    ip("netns", "del", NAME)
    remove_stale_hosts()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):
        signal.signal(number, lambda *_: sys.exit(1))  # so that what follows `finally` happens
    signal.alarm(200)
    folder = tempfile.mkdtemp(prefix="trireme-ns-")
    try:
        make_hosts()
        check_tcp()
        check_token()
        check_checksum()
        check_mpi(folder)
    finally:
        remove(HOSTS)
        shutil.rmtree(folder, ignore_errors=True)


main()
