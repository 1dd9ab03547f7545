// What every launcher's environment means, and which ones are refused.
#include "trireme/comm/control/launch_environment.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/comm/control/control_test_util.h"

namespace trireme {
namespace {

using control::testing::contains;
using Ports = std::vector<uint16_t>;
using Variables = std::vector<std::pair<std::string, std::string>>;

Variables with(Variables base, const Variables& more) {
  // The first of a name counts.
  base.insert(base.begin(), more.begin(), more.end());
  return base;
}

std::string error_of(const Variables& variables) {
  try {
    read_launch_environment(variables);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

const Variables kOwn = {{"TRIREME_RANK", "1"},       {"TRIREME_WORLD_SIZE", "4"}, {"TRIREME_LOCAL_RANK", "1"},
                        {"TRIREME_LOCAL_SIZE", "4"}, {"TRIREME_JOB", "j"},        {"TRIREME_MASTER", "127.0.0.1:2900"}};
const Variables kTorchrun = {{"RANK", "5"},
                             {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "4"},
                             {"MASTER_ADDR", "node-a"},
                             {"MASTER_PORT", "29500"},
                             {"TORCHELASTIC_RUN_ID", "none"},
                             {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                             {"TRIREME_TOKEN", "secret"}};
const Variables kSlurm = {{"SLURM_PROCID", "5"},
                          {"SLURM_NTASKS", "9"},
                          {"SLURM_LOCALID", "1"},
                          {"SLURM_NODEID", "1"},
                          {"SLURM_STEP_NODELIST", "node[01-04,07],x"},
                          {"SLURM_STEP_TASKS_PER_NODE", "4(x2),1"},
                          {"SLURM_JOB_ID", "1234"},
                          {"SLURM_STEP_ID", "0"},
                          {"TRIREME_TOKEN", "secret"}};
const Variables kMpi = {{"OMPI_COMM_WORLD_RANK", "2"},
                        {"OMPI_COMM_WORLD_SIZE", "4"},
                        {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                        {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};

TEST(LaunchEnvironment, NothingMeansAlone) {
  const LaunchEnvironment e = read_launch_environment({{"PATH", "/bin"}, {"RANK", ""}});
  EXPECT_EQ(e.launcher, Launcher::kAlone);
  EXPECT_EQ(e.rank, 0);
  EXPECT_EQ(e.size, 1);
}

TEST(LaunchEnvironment, OwnLaunch) {
  const LaunchEnvironment e = read_launch_environment(kOwn);
  EXPECT_EQ(e.launcher, Launcher::kTrireme);
  EXPECT_EQ(e.rank, 1);
  EXPECT_EQ(e.size, 4);
  EXPECT_EQ(e.local_rank, 1);
  EXPECT_EQ(e.local_size, 4);
  EXPECT_EQ(e.master_address, "127.0.0.1");
  EXPECT_EQ(e.master_ports, (Ports{2900}));
  EXPECT_EQ(e.bind_address, "127.0.0.1");
  EXPECT_EQ(e.job, "j");
  EXPECT_EQ(e.token, "");
  EXPECT_EQ(e.listen_fd, -1);
}

TEST(LaunchEnvironment, OwnLaunchElsewhere) {
  const LaunchEnvironment e = read_launch_environment(with(kOwn, {{"TRIREME_MASTER", "[fd00::2]:7"},
                                                                  {"TRIREME_TOKEN", "s"},
                                                                  {"TRIREME_RANK", "0"},
                                                                  {"TRIREME_LOCAL_RANK", "0"},
                                                                  {"TRIREME_LISTEN_FD", "5"}}));
  EXPECT_EQ(e.master_address, "fd00::2");
  EXPECT_EQ(e.master_ports, (Ports{7}));
  EXPECT_EQ(e.token, "s");
  EXPECT_EQ(e.bind_address, "");
  EXPECT_EQ(e.listen_fd, 5);
}

TEST(LaunchEnvironment, TheListeningSocketIsRankZeros) {
  EXPECT_EQ(read_launch_environment(with(kOwn, {{"TRIREME_LISTEN_FD", "5"}})).listen_fd, -1);
}

TEST(LaunchEnvironment, OwnLaunchComesFirst) {
  Variables all = kTorchrun;
  for (const Variables& more : {kSlurm, kMpi, kOwn}) all = with(all, more);
  EXPECT_EQ(read_launch_environment(all).launcher, Launcher::kTrireme);
}

TEST(LaunchEnvironment, TorchrunBesideItsAgentsStore) {
  const LaunchEnvironment e = read_launch_environment(kTorchrun);
  EXPECT_EQ(e.launcher, Launcher::kTorchrun);
  EXPECT_EQ(e.rank, 5);
  EXPECT_EQ(e.size, 8);
  EXPECT_EQ(e.local_rank, 1);
  EXPECT_EQ(e.local_size, 4);
  EXPECT_EQ(e.master_address, "node-a");
  EXPECT_EQ(e.master_ports, (Ports{29501, 29502, 29503, 29504, 29505, 29506, 29507, 29508}));
  EXPECT_EQ(e.job, "torchrun none node-a:29500");
}

TEST(LaunchEnvironment, TorchrunAtTheEndOfThePorts) {
  const LaunchEnvironment e = read_launch_environment(with(kTorchrun, {{"MASTER_PORT", "65533"}}));
  EXPECT_EQ(e.master_ports, (Ports{65534, 65535, 65530, 65529, 65528, 65527, 65526, 65525}));
}

TEST(LaunchEnvironment, TorchrunWithoutAgentStore) {
  const LaunchEnvironment e = read_launch_environment(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}}));
  EXPECT_EQ(e.master_ports, (Ports{29500}));
}

TEST(LaunchEnvironment, AJobOnOneHostMeetsOnLoopback) {
  const LaunchEnvironment e =
      read_launch_environment(with(kTorchrun, {{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"TRIREME_TOKEN", ""}}));
  EXPECT_EQ(e.master_address, "127.0.0.1");
  EXPECT_EQ(e.bind_address, "127.0.0.1");
  EXPECT_EQ(e.token, "");
}

TEST(LaunchEnvironment, TorchVariablesSetByHand) {
  const LaunchEnvironment e = read_launch_environment(
      {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "2900"}});
  EXPECT_EQ(e.bind_address, "127.0.0.1");
  EXPECT_EQ(e.local_rank, 1);
  EXPECT_EQ(e.local_size, 2);
}

TEST(LaunchEnvironment, Srun) {
  const LaunchEnvironment e = read_launch_environment(kSlurm);
  EXPECT_EQ(e.launcher, Launcher::kSlurm);
  EXPECT_EQ(e.rank, 5);
  EXPECT_EQ(e.size, 9);
  EXPECT_EQ(e.local_rank, 1);
  EXPECT_EQ(e.local_size, 4);
  EXPECT_EQ(e.master_address, "node01");
  EXPECT_EQ(e.job, "slurm 1234.0");
  ASSERT_FALSE(e.master_ports.empty());
  for (uint16_t port : e.master_ports) {
    EXPECT_GE(port, 20000);
    EXPECT_LE(port, 59999);
  }
  EXPECT_EQ(e.master_ports, read_launch_environment(with(kSlurm, {{"SLURM_PROCID", "0"}})).master_ports);
  EXPECT_NE(e.master_ports, read_launch_environment(with(kSlurm, {{"SLURM_JOB_ID", "1235"}})).master_ports);
}

TEST(LaunchEnvironment, SrunOnAGivenMaster) {
  const LaunchEnvironment e =
      read_launch_environment(with(kSlurm, {{"MASTER_ADDR", "10.1.2.3"}, {"MASTER_PORT", "4000"}}));
  EXPECT_EQ(e.master_address, "10.1.2.3");
  EXPECT_EQ(e.master_ports, (Ports{4000}));
}

TEST(LaunchEnvironment, SrunWithAWorldSizeExportedByTheScript) {
  EXPECT_EQ(read_launch_environment(with(kSlurm, {{"WORLD_SIZE", "9"}})).launcher, Launcher::kSlurm);
}

TEST(LaunchEnvironment, AShellInsideAnAllocationIsAlone) {
  EXPECT_EQ(read_launch_environment(with(kSlurm, {{"SLURM_STEP_ID", ""}})).launcher, Launcher::kAlone);
  EXPECT_EQ(read_launch_environment(with(kSlurm, {{"SLURM_STEP_ID", "4294967290"}})).launcher, Launcher::kAlone);
  EXPECT_EQ(read_launch_environment(with(kSlurm, {{"SLURM_NTASKS", "1"}})).launcher, Launcher::kAlone);
}

TEST(LaunchEnvironment, SlurmLists) {
  const std::pair<const char*, const char*> cases[] = {
      {"node[01-04,07],x", "node01"},    {"x,node[1-2]", "x"},        {"n1", "n1"},      {"n[7]", "n7"},
      {"rack[1-2]n[03,07]", "rack1n03"}, {"a-b[10-12]-c", "a-b10-c"}, {"n[5,1-3]", "n5"}};
  for (const auto& [list, first] : cases) {
    EXPECT_EQ(read_launch_environment(with(kSlurm, {{"SLURM_STEP_NODELIST", list}})).master_address, first);
  }
  for (const char* list : {"node[", "[", "node[]", ",", "a b", "node[1-2]]"}) {
    EXPECT_TRUE(contains(error_of(with(kSlurm, {{"SLURM_STEP_NODELIST", list}})), "SLURM_STEP_NODELIST")) << list;
  }
  for (const char* counts : {"4(x", "4(x)", "x", "4,", "4(x99999999)", "4;1"}) {
    EXPECT_TRUE(contains(error_of(with(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", counts}})), "TASKS_PER_NODE")) << counts;
  }
}

TEST(LaunchEnvironment, MpirunTellsTheRestLater) {
  const LaunchEnvironment e = read_launch_environment(kMpi);
  EXPECT_EQ(e.launcher, Launcher::kMpi);
  EXPECT_EQ(e.rank, 2);
  EXPECT_EQ(e.size, 4);
  EXPECT_EQ(e.local_rank, 0);
  EXPECT_EQ(e.local_size, 2);
  EXPECT_EQ(e.master_address, "");
  EXPECT_EQ(e.token, "");
}

TEST(LaunchEnvironment, MpirunOnAGivenMaster) {
  const LaunchEnvironment e =
      read_launch_environment(with(kMpi, {{"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "4000"}}));
  EXPECT_EQ(e.master_address, "10.0.0.1");
  EXPECT_EQ(e.master_ports, (Ports{4000}));
}

TEST(LaunchEnvironment, TheAddressToListenOnCanBeChosen) {
  EXPECT_EQ(read_launch_environment(with(kTorchrun, {{"TRIREME_BIND", "10.0.0.9"}})).bind_address, "10.0.0.9");
  EXPECT_TRUE(contains(error_of(with(kTorchrun, {{"TRIREME_BIND", "eth0"}})), "TRIREME_BIND=\"eth0\""));
}

TEST(LaunchEnvironment, RefusalsNameTheVariable) {
  struct Case {
    Variables variables;
    std::vector<const char*> words;
  };
  const Case cases[] = {
      {{{"TRIREME_RANK", "0"}}, {"TRIREME_RANK is set but TRIREME_WORLD_SIZE is not"}},
      {{{"TRIREME_WORLD_SIZE", "2"}}, {"TRIREME_WORLD_SIZE is set but TRIREME_RANK is not"}},
      {{{"RANK", "0"}}, {"RANK is set but WORLD_SIZE is not"}},
      {{{"WORLD_SIZE", "2"}}, {"WORLD_SIZE is set but RANK is not"}},
      {{{"OMPI_COMM_WORLD_RANK", "0"}}, {"OMPI_COMM_WORLD_SIZE is not"}},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}}, {"MASTER_ADDR is not"}},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}}, {"MASTER_PORT is not"}},
      {{{"TRIREME_RANK", "0"}, {"TRIREME_WORLD_SIZE", "2"}}, {"TRIREME_MASTER is not"}},
      {with(kOwn, {{"TRIREME_RANK", "4"}}), {"TRIREME_RANK=4", "TRIREME_WORLD_SIZE=4", "from 0 to 3"}},
      {with(kTorchrun, {{"RANK", "8"}}), {"RANK=8", "WORLD_SIZE=8"}},
      {with(kTorchrun, {{"LOCAL_RANK", "4"}}), {"LOCAL_RANK=4", "LOCAL_WORLD_SIZE=4"}},
      {with(kTorchrun, {{"LOCAL_WORLD_SIZE", "9"}}), {"LOCAL_WORLD_SIZE=9"}},
      {with(kTorchrun, {{"LOCAL_RANK", ""}}), {"LOCAL_RANK is not"}},
      {with(kSlurm, {{"SLURM_PROCID", "9"}}), {"SLURM_PROCID=9", "SLURM_NTASKS=9"}},
      {with(kMpi, {{"OMPI_COMM_WORLD_RANK", "4"}}), {"OMPI_COMM_WORLD_RANK=4"}},
      {with(kOwn, {{"TRIREME_RANK", "one"}}), {"TRIREME_RANK=\"one\"", "not a number"}},
      {with(kOwn, {{"TRIREME_RANK", "1x"}}), {"TRIREME_RANK=\"1x\""}},
      {with(kOwn, {{"TRIREME_RANK", "-1"}}), {"TRIREME_RANK=\"-1\""}},
      {with(kOwn, {{"TRIREME_RANK", "99999999999999999999"}}), {"TRIREME_RANK="}},
      {with(kOwn, {{"TRIREME_WORLD_SIZE", "0"}}), {"TRIREME_WORLD_SIZE=\"0\""}},
      {with(kTorchrun, {{"MASTER_PORT", "65536"}}), {"MASTER_PORT=\"65536\""}},
      {with(kOwn, {{"TRIREME_MASTER", "127.0.0.1"}}), {"TRIREME_MASTER=\"127.0.0.1\" is not address:port"}},
      {with(kOwn, {{"TRIREME_MASTER", ":5"}}), {"is not address:port"}},
      {with(kOwn, {{"TRIREME_MASTER", "a:0"}}), {"is not address:port"}},
      {with(kOwn, {{"TRIREME_MASTER", "10.0.0.1:2900"}}), {"needs a token", "export TRIREME_TOKEN="}},
      {with(kTorchrun, {{"TRIREME_TOKEN", ""}}), {"rank 0 is at node-a", "needs a token"}},
      {with(kSlurm, {{"TRIREME_TOKEN", ""}}), {"rank 0 is at node01", "needs a token"}},
      {with(kOwn, {{"TRIREME_TOKEN_FILE", "/no/such/file"}}), {"/no/such/file"}},
  };
  for (const Case& c : cases) {
    const std::string error = error_of(c.variables);
    for (const char* word : c.words) EXPECT_TRUE(contains(error, word));
    EXPECT_TRUE(contains(error, "\n  ")) << "no cure";
  }
}

}  // namespace
}  // namespace trireme
