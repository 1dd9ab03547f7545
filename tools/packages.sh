# The Debian packages that a build and its tests use. Read by the scripts ./trireme and tools/setup.sh.

# Without these nothing builds.
needed='g++ cmake ninja-build libcli11-dev libtomlplusplus-dev nlohmann-json3-dev libfmt-dev libgtest-dev'
needed+=' python3 python3-pip unzip git ca-certificates'

# Faster builds (ccache, mold); the MPI transport and the comparison with MPI (Open MPI); the tests of networks
# (iproute2) and of formatting (clang-format); micro-benchmarks. Each is used when present.
wanted='ccache mold libopenmpi-dev openmpi-bin iproute2 clang-format libbenchmark-dev'
