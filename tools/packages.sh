# The Debian packages that a build and its tests use. Read by the scripts ./trireme and tools/setup.sh.

# Without these nothing builds.
needed='g++ cmake ninja-build libcli11-dev libtomlplusplus-dev nlohmann-json3-dev libfmt-dev'
needed+=' python3 python3-pip unzip git ca-certificates'
# Faster builds; used when present.
wanted='ccache mold'

# Of the tests: the MPI transport and the comparison with MPI, networks (iproute2), formatting, micro-benchmarks.
needed_by_tests='libgtest-dev'
wanted_by_tests='libopenmpi-dev openmpi-bin iproute2 clang-format libbenchmark-dev'
