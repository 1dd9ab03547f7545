// The crews of `trireme bench comm` and how each is started: our own ranks, Open MPI, Gloo.
#pragma once

#include <memory>
#include <string>

#include "trireme/measure/crew.h"

namespace trireme::measure {

/// Our ranks over a transport: "auto", "threads", "tcp" or "mpi". Each is this program with --worker.
/// `bind`: to cores, where there are enough. The leader is ready with the name of what it got, such as "shared memory".
std::unique_ptr<Crew> start_ours(const std::string& transport, int ranks, bool bind, Guardian& guardian,
                                 const Crew::Variables& variables = {});
/// `trireme-peer-mpi` under mpirun, ready with the version.
std::unique_ptr<Crew> start_mpi_peer(int ranks, bool bind, Guardian& guardian);
/// `peer_gloo.py` by the interpreter in $TRIREME_PYTHON, ready with the version.
std::unique_ptr<Crew> start_gloo_peer(int ranks, Guardian& guardian);

/// Throws Error with the packages to install when this transport or peer cannot be started.
void check_mpi_transport();
void check_mpi_peer();
/// Why Gloo cannot be started and what to do about it; empty when it can.
std::string gloo_problem();

}  // namespace trireme::measure
