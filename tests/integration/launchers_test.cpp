// World::join under the variables of torchrun, srun and mpirun, set by hand: none of them has to be installed.
#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "support/paths.h"
#include "support/process_group.h"
#include "trireme/comm/transport/socket.h"

namespace trireme {
namespace {

using namespace std::chrono_literals;

const std::vector<std::string> kProgram{program_path("checksum_program")};

std::string host_name() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

std::string free_port() { return std::to_string(local_address(listen_on("127.0.0.1", 0, 1)).port); }

/// Ranks of one job, each with its own variables.
class Job {
 public:
  void start(const Environment& environment) {
    Environment all = environment;
    all["XDG_RUNTIME_DIR"] = folder_.path();  // token files of jobs without a token
    const std::string name = "output" + std::to_string(children_.size());
    children_.emplace_back(kProgram, all, folder_.path() / name);
  }
  void expect_all_right(const std::string& transport = "shared memory") {
    for (size_t rank = 0; rank < children_.size(); ++rank) {
      EXPECT_EQ(children_[rank].wait(Deadline::after(60s)), 0) << "rank " << rank << ": " << children_[rank].output();
    }
    std::string outputs;  // only rank 0 says something
    for (const ChildProcess& child : children_) outputs += child.output();
    const std::string wanted = " of " + std::to_string(children_.size()) + " ranks over " + transport + "\n";
    EXPECT_NE(outputs.find(wanted), std::string::npos) << outputs;
  }
  void expect_refused(const std::vector<std::string>& words) {
    for (ChildProcess& child : children_) {
      EXPECT_EQ(child.wait(Deadline::after(60s)), 1);
      for (const std::string& word : words) {
        EXPECT_NE(child.output().find(word), std::string::npos) << "no \"" << word << "\" in " << child.output();
      }
    }
  }

 private:
  ScratchFolder folder_;
  std::vector<ChildProcess> children_;
};

Environment torchrun(int rank, int size, const std::string& address, const std::string& port) {
  const std::string r = std::to_string(rank), n = std::to_string(size);
  return {{"RANK", r},
          {"WORLD_SIZE", n},
          {"LOCAL_RANK", r},
          {"LOCAL_WORLD_SIZE", n},
          {"GROUP_RANK", "0"},
          {"GROUP_WORLD_SIZE", "1"},
          {"ROLE_RANK", r},
          {"ROLE_WORLD_SIZE", n},
          {"MASTER_ADDR", address},
          {"MASTER_PORT", port},
          {"TORCHELASTIC_RUN_ID", "none"},
          {"TORCHELASTIC_RESTART_COUNT", "0"},
          {"TORCHELASTIC_MAX_RESTARTS", "0"}};
}

TEST(Launchers, Torchrun) {
  Job job;
  const std::string port = free_port();
  for (int rank = 0; rank < 3; ++rank) job.start(torchrun(rank, 3, "127.0.0.1", port));
  job.expect_all_right();
}

TEST(Launchers, TorchrunWithItsStoreOnThePort) {
  // The agent holds MASTER_PORT and names the host, as torchrun --standalone does.
  const Socket agent = listen_on("127.0.0.1", 0, 16);
  const std::string port = std::to_string(local_address(agent).port);
  Job job;
  for (int rank = 0; rank < 2; ++rank) {
    Environment environment = torchrun(rank, 2, host_name(), port);
    environment["TORCHELASTIC_USE_AGENT_STORE"] = "True";
    job.start(environment);
  }
  job.expect_all_right();
}

TEST(Launchers, TorchVariablesByHand) {
  // As people set them for torch.distributed: without the local ones.
  const std::string port = free_port();
  Job job;
  for (int rank = 0; rank < 2; ++rank) {
    job.start({{"RANK", std::to_string(rank)},
               {"WORLD_SIZE", "2"},
               {"MASTER_ADDR", "localhost"},
               {"MASTER_PORT", port},
               {"TRIREME_TOKEN", "a secret"}});
  }
  job.expect_all_right();
}

TEST(Launchers, RanksMayComeInAnyOrder) {
  const std::string port = free_port();
  Job job;
  for (const int rank : {2, 1}) job.start(torchrun(rank, 3, "127.0.0.1", port));
  std::this_thread::sleep_for(300ms);  // rank 0 is late: the others keep knocking
  job.start(torchrun(0, 3, "127.0.0.1", port));
  job.expect_all_right();
}

Environment slurm(int rank, int size, const std::string& job) {
  const std::string r = std::to_string(rank), n = std::to_string(size);
  return {{"SLURM_PROCID", r},
          {"SLURM_NTASKS", n},
          {"SLURM_STEP_NUM_TASKS", n},
          {"SLURM_LOCALID", r},
          {"SLURM_NODEID", "0"},
          {"SLURM_JOB_ID", job},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_STEP_NODELIST", host_name()},
          {"SLURM_STEP_TASKS_PER_NODE", n}};
}

TEST(Launchers, Srun) {
  const std::string number = std::to_string(getpid());
  Job job;
  for (int rank = 0; rank < 3; ++rank) job.start(slurm(rank, 3, number));
  job.expect_all_right();
}

TEST(Launchers, TwoSlurmJobsOnOneNodeDoNotMeet) {
  const std::string first = std::to_string(getpid()), second = std::to_string(getpid() + 1);
  Job a, b;
  for (int rank = 0; rank < 2; ++rank) {
    a.start(slurm(rank, 2, first));
    b.start(slurm(rank, 2, second));
  }
  a.expect_all_right();
  b.expect_all_right();
}

TEST(Launchers, MpirunThatIsToldWhereToMeet) {
  const std::string port = free_port();
  Job job;
  for (int rank = 0; rank < 3; ++rank) {
    const std::string r = std::to_string(rank);
    job.start({{"OMPI_COMM_WORLD_RANK", r},
               {"OMPI_COMM_WORLD_SIZE", "3"},
               {"OMPI_COMM_WORLD_LOCAL_RANK", r},
               {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
               {"MASTER_ADDR", "127.0.0.1"},
               {"MASTER_PORT", port}});
  }
  job.expect_all_right();
}

TEST(Launchers, NobodyAtAll) {
  Job job;
  job.start({});
  job.expect_all_right("alone");
}

TEST(Launchers, HalfSetVariablesAreRefusedWithTheCure) {
  Job job;
  job.start({{"RANK", "0"}, {"WORLD_SIZE", "2"}});
  job.expect_refused({"MASTER_ADDR is not", "Set MASTER_ADDR and MASTER_PORT"});
  Job outside;
  outside.start({{"RANK", "2"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "1234"}});
  outside.expect_refused({"RANK=2 is outside the world", "from 0 to 1"});
}

TEST(Launchers, BeyondLoopbackATokenIsNeeded) {
  Job job;
  job.start({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "10.77.0.1"}, {"MASTER_PORT", "1234"}});
  job.expect_refused({"needs a token", "TRIREME_TOKEN"});
}

TEST(Launchers, AWrongTokenIsRefused) {
  const std::string port = free_port();
  Environment environment = torchrun(0, 2, "127.0.0.1", port);
  environment["TRIREME_TOKEN"] = "right";
  Job rank_0;
  rank_0.start(environment);  // waits for its peer, and ends with the test
  environment["RANK"] = environment["LOCAL_RANK"] = "1";
  environment["TRIREME_TOKEN"] = "wrong";
  Job rank_1;
  rank_1.start(environment);
  rank_1.expect_refused({"token"});
}

TEST(Launchers, AnUnknownTransportIsRefused) {
  Job job;
  job.start({{"TRIREME_TRANSPORT", "carrier-pigeon"}});
  job.expect_refused({"carrier-pigeon", "auto"});
}

}  // namespace
}  // namespace trireme
