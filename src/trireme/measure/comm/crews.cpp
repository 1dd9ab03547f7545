#include "trireme/measure/comm/crews.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <span>

#include "trireme/base/sha256.h"
#include "trireme/comm/transport/mpi_backend.h"
#include "trireme/comm/transport/socket.h"
#include "trireme/measure/probe.h"
#include "trireme/measure/programs.h"

namespace trireme::measure {
namespace {

namespace fs = std::filesystem;

constexpr const char* kInstallMpi = "install it: apt-get install openmpi-bin libopenmpi-dev, then build again";

std::string random_hex(size_t num_bytes) {
  std::vector<std::byte> bytes(num_bytes);
  fill_random(bytes);
  return to_hex(bytes);
}

std::vector<std::string> under_mpirun(int ranks, bool bind, const std::vector<std::string>& program) {
  std::vector<std::string> argv = {find_program("mpirun"), "--allow-run-as-root", "--oversubscribe", "-np",
                                   std::to_string(ranks)};
  if (!bind) argv.insert(argv.end(), {"--bind-to", "none"});
  argv.insert(argv.end(), program.begin(), program.end());
  return argv;
}

/// Rank 0 inherits the socket, which is listening already, so that no other program can take the port.
std::vector<Crew::Member> one_per_rank(const std::string& name, const std::vector<std::string>& argv,
                                       const Crew::Variables& common, int ranks,
                                       std::initializer_list<const char*> rank_variables, const char* socket_variable,
                                       const Socket& listener) {
  std::vector<Crew::Member> members;
  for (int rank = 0; rank < ranks; ++rank) {
    Crew::Member member{fmt::format("{} {}", name, rank), argv, common};
    for (const char* variable : rank_variables) member.environment.emplace_back(variable, std::to_string(rank));
    if (rank == 0) {
      member.environment.emplace_back(socket_variable, std::to_string(listener.fd()));
      member.kept_fd = listener.fd();
    }
    members.push_back(std::move(member));
  }
  return members;
}

}  // namespace

std::unique_ptr<Crew> start_ours(const std::string& transport, int ranks, bool bind, Guardian& guardian,
                                 const Crew::Variables& variables) {
  const std::string self = program_folder() + "/" + fs::read_symlink("/proc/self/exe").filename().string();
  std::vector<std::string> worker = {self, "bench", "comm", "--worker"};
  if (!bind) worker.push_back("--unbound");
  if (transport == "threads") {
    std::vector<std::string> argv = worker;
    argv.insert(argv.end(), {"--ranks", std::to_string(ranks), "--transport", "threads"});
    return std::make_unique<Crew>("our ranks", std::vector<Crew::Member>{{"our process", argv, variables}}, guardian);
  }
  Crew::Variables common = variables;
  common.emplace_back("TRIREME_TRANSPORT", transport);
  if (transport == "mpi") {
    return std::make_unique<Crew>(
        "our ranks", std::vector<Crew::Member>{{"mpirun of our ranks", under_mpirun(ranks, bind, worker), common}},
        guardian);
  }
  const Socket listener = listen_on("127.0.0.1", 0, std::max(128, ranks));
  common.insert(common.end(), {{"TRIREME_WORLD_SIZE", std::to_string(ranks)},
                               {"TRIREME_LOCAL_SIZE", std::to_string(ranks)},
                               {"TRIREME_MASTER", "127.0.0.1:" + std::to_string(local_address(listener).port)},
                               {"TRIREME_JOB", random_hex(8)},
                               {"TRIREME_TOKEN", random_hex(32)}});
  const auto members = one_per_rank("our rank", worker, common, ranks, {"TRIREME_RANK", "TRIREME_LOCAL_RANK"},
                                    "TRIREME_LISTEN_FD", listener);
  return std::make_unique<Crew>("our ranks", members, guardian);
}

std::unique_ptr<Crew> start_mpi_peer(int ranks, bool bind, Guardian& guardian) {
  const std::vector<std::string> argv = under_mpirun(ranks, bind, {program_folder() + "/trireme-peer-mpi"});
  return std::make_unique<Crew>("MPI", std::vector<Crew::Member>{{"mpirun of MPI's ranks", argv, {}}}, guardian);
}

std::unique_ptr<Crew> start_gloo_peer(int ranks, Guardian& guardian) {
  const Socket listener = listen_on("127.0.0.1", 0, std::max(128, ranks));
  const Crew::Variables common = {{"WORLD_SIZE", std::to_string(ranks)},
                                  {"MASTER_PORT", std::to_string(local_address(listener).port)},
                                  {"GLOO_SOCKET_IFNAME", "lo"},
                                  {"OMP_NUM_THREADS", "1"}};
  const auto members = one_per_rank("Gloo's rank", {find_program(peer_python()), peer_script("peer_gloo.py")}, common,
                                    ranks, {"RANK"}, "PEER_LISTEN_FD", listener);
  return std::make_unique<Crew>("Gloo", members, guardian);
}

void check_mpi_transport() {
  if (find_in_path("mpirun").empty()) throw Error("--transport mpi needs mpirun, which is not in PATH", kInstallMpi);
  if (!mpi_backend_installed()) throw Error("this trireme was built without the MPI transport", kInstallMpi);
}

void check_mpi_peer() {
  if (find_in_path("mpirun").empty()) throw Error("--compare mpi needs mpirun, which is not in PATH", kInstallMpi);
  const std::string program = program_folder() + "/trireme-peer-mpi";
  if (access(program.c_str(), X_OK) != 0) {
    throw Error("--compare mpi needs " + program + ", which is built where MPI is found", kInstallMpi);
  }
}

std::string gloo_problem() {
  const std::string problem = peer_problem("peer_gloo.py");
  return problem.empty() ? "" : "Gloo is left out: " + problem;
}

}  // namespace trireme::measure
