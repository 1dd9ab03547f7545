#include "trireme/launch/local_launch.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "trireme/base/deadline.h"
#include "trireme/base/error.h"

namespace trireme {
namespace {

using std::chrono::milliseconds;

LocalLaunch shell(int num_processes, const std::string& script) {
  LocalLaunch launch;
  launch.num_processes = num_processes;
  launch.argv = {"sh", "-c", script};
  launch.grace = milliseconds(100);
  launch.kill_after = milliseconds(100);
  return launch;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

/// True while the process runs; a dead one that nobody has waited for does not count.
bool is_alive(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t end = text.rfind(')');
  return end != text.npos && text[end + 2] != 'Z';
}

class LocalLaunchTest : public testing::Test {
 protected:
  LocalLaunchTest() {
    signal(SIGINT, SIG_DFL);  // a shell's background jobs ignore it, and what is ignored is not forwarded
    char name[] = "/tmp/trireme-launch-XXXXXX";
    folder_ = mkdtemp(name);
  }
  ~LocalLaunchTest() override { std::filesystem::remove_all(folder_); }

  void TearDown() override {
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
    EXPECT_EQ(errno, ECHILD);
  }

  std::string read(const std::string& name) const {
    std::ifstream file(folder_ / name);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

  /// The environment that `env > FOLDER/NAME` wrote.
  std::map<std::string, std::string> variables(const std::string& name) const {
    std::map<std::string, std::string> found;
    std::stringstream text(read(name));
    for (std::string line; std::getline(text, line);) {
      const size_t equals = line.find('=');
      if (line.starts_with("TRIREME_") && equals != line.npos) found[line.substr(0, equals)] = line.substr(equals + 1);
    }
    return found;
  }

  std::filesystem::path folder_;
};

TEST_F(LocalLaunchTest, TellsWhyARankFailed) {
  LocalLaunch launch = shell(2, R"(if [ $TRIREME_RANK = 0 ]; then words='"error": "lost 1", "peer": 1'; else
    words='"error": "no disk", "cure": "buy one", "step": 7'; fi; echo "{$words}" >> $TRIREME_FAILURES; exit 1)");
  EXPECT_FALSE(launch_locally(launch).told) << "nobody asked";
  launch.asks_why = true;
  const Error why = launch_locally(launch).failure();
  EXPECT_STREQ(why.what(), "no disk\n  buy one") << "who blames another rank comes second";
  EXPECT_EQ(why.where().step, 7);

  launch = shell(1, "kill -9 $$");
  const Error silent = launch_locally(launch).failure();
  EXPECT_TRUE(contains(silent.what(), "was killed by SIGKILL")) << silent.what();
  EXPECT_EQ(silent.where().rank, 0);
}

TEST_F(LocalLaunchTest, SucceedsWhenAllRanksDo) {
  const LaunchReport report = launch_locally(shell(3, "exit 0"));
  EXPECT_EQ(report.exit_code, 0);
  EXPECT_EQ(report.ends.size(), 3u);
  EXPECT_EQ(report.text(), "");
}

TEST_F(LocalLaunchTest, TellsEachRankWhoItIs) {
  setenv("TRIREME_LISTEN_FD", "99", 1);  // as under another launcher
  setenv("TRIREME_TOKEN_FILE", "/nowhere", 1);
  LocalLaunch launch =
      shell(3, "env > $FOLDER/$TRIREME_RANK; readlink /proc/self/fd/$TRIREME_LISTEN_FD > $FOLDER/fd$TRIREME_RANK");
  launch.environment = {{"FOLDER", folder_}};
  launch_locally(launch);
  unsetenv("TRIREME_LISTEN_FD");
  unsetenv("TRIREME_TOKEN_FILE");

  auto first = variables("0");
  for (int rank = 0; rank < 3; ++rank) {
    auto own = variables(std::to_string(rank));
    EXPECT_EQ(own["TRIREME_RANK"], std::to_string(rank));
    EXPECT_EQ(own["TRIREME_LOCAL_RANK"], std::to_string(rank));
    EXPECT_EQ(own["TRIREME_WORLD_SIZE"], "3");
    EXPECT_EQ(own["TRIREME_LOCAL_SIZE"], "3");
    EXPECT_TRUE(own["TRIREME_MASTER"].starts_with("127.0.0.1:"));
    EXPECT_EQ(own["TRIREME_MASTER"], first["TRIREME_MASTER"]);
    EXPECT_EQ(own["TRIREME_JOB"], first["TRIREME_JOB"]);
    EXPECT_EQ(own["TRIREME_TOKEN"], first["TRIREME_TOKEN"]);
    EXPECT_EQ(own["TRIREME_TOKEN"].size(), 64u);
    EXPECT_EQ(own.count("TRIREME_LISTEN_FD"), rank == 0 ? 1u : 0u);
    EXPECT_EQ(own.count("TRIREME_TOKEN_FILE"), 0u);
    EXPECT_EQ(contains(read("fd" + std::to_string(rank)), "socket:"), rank == 0);
  }
}

TEST_F(LocalLaunchTest, DrawsANewTokenForEachJob) {
  std::set<std::string> tokens;
  for (const std::string name : {"a", "b"}) {
    LocalLaunch launch = shell(1, "env > " + (folder_ / name).string());
    launch_locally(launch);
    tokens.insert(variables(name)["TRIREME_TOKEN"]);
  }
  EXPECT_EQ(tokens.size(), 2u);
}

TEST_F(LocalLaunchTest, CountsRanksOverNodes) {
  LocalLaunch launch = shell(2, "env > " + folder_.string() + "/$TRIREME_RANK");
  launch.num_nodes = 3;
  launch.node_rank = 1;
  launch.master_address = "10.0.0.1";
  launch.master_port = 2900;
  EXPECT_THROW(launch_locally(launch), UsageError) << "no token";
  launch.token = "secret";
  EXPECT_EQ(launch_locally(launch).exit_code, 0);
  auto last = variables("3");
  EXPECT_EQ(last["TRIREME_WORLD_SIZE"], "6");
  EXPECT_EQ(last["TRIREME_LOCAL_RANK"], "1");
  EXPECT_EQ(last["TRIREME_MASTER"], "10.0.0.1:2900");
  EXPECT_EQ(last["TRIREME_TOKEN"], "secret");
  EXPECT_EQ(last.count("TRIREME_LISTEN_FD"), 0u);
}

TEST_F(LocalLaunchTest, EndsTheOthersWhenOneFails) {
  const auto start = Clock::now();
  const LaunchReport report = launch_locally(shell(3, "[ $TRIREME_RANK = 1 ] && exit 7; exec sleep 60"));
  EXPECT_EQ(report.exit_code, 7);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(20));
  EXPECT_EQ(report.ends[0].rank, 1);
  EXPECT_TRUE(contains(report.text(), "rank 1 (pid " + std::to_string(report.ends[0].pid) + ") ended with exit code 7"))
      << report.text();
  EXPECT_TRUE(contains(report.text(), "2 ranks were stopped by the launcher")) << report.text();
}

TEST_F(LocalLaunchTest, LetsTheOthersEndByThemselves) {
  LocalLaunch launch = shell(2, "[ $TRIREME_RANK = 1 ] && exit 7; sleep 0.3; exit 0");
  launch.grace = std::chrono::seconds(30);
  const LaunchReport report = launch_locally(launch);
  EXPECT_EQ(report.exit_code, 7);
  ASSERT_EQ(report.ends.size(), 2u);
  EXPECT_FALSE(report.ends[1].failed());
}

TEST_F(LocalLaunchTest, KillsWhoIgnoresSigterm) {
  const LaunchReport report =
      launch_locally(shell(2, "[ $TRIREME_RANK = 1 ] && exit 3; trap '' TERM; while :; do sleep 0.05; done"));
  EXPECT_EQ(report.exit_code, 3);
  ASSERT_EQ(report.ends.size(), 2u);
  EXPECT_EQ(report.ends[1].signal, SIGKILL);
  EXPECT_TRUE(report.ends[1].stopped_by_launcher);
}

TEST_F(LocalLaunchTest, NamesTheSignal) {
  const LaunchReport report = launch_locally(shell(2, "[ $TRIREME_RANK = 1 ] && kill -9 $$; sleep 0.3; exit 1"));
  EXPECT_EQ(report.exit_code, 128 + SIGKILL);
  EXPECT_TRUE(contains(report.text(), ") was killed by SIGKILL")) << report.text();
}

TEST_F(LocalLaunchTest, KeepsItsTimeout) {
  LocalLaunch launch = shell(2, "exec sleep 60");
  launch.timeout = milliseconds(200);
  const LaunchReport report = launch_locally(launch);
  EXPECT_EQ(report.exit_code, 124);
  EXPECT_TRUE(report.timed_out);
  EXPECT_TRUE(contains(report.text(), "did not end in time")) << report.text();
}

TEST_F(LocalLaunchTest, ForwardsCtrlC) {
  const LaunchReport report = launch_locally(shell(2, "[ $TRIREME_RANK = 0 ] && kill -INT $PPID; exec sleep 60"));
  EXPECT_EQ(report.exit_code, 130);
  EXPECT_EQ(report.interrupted_by, SIGINT);
  for (const RankEnd& end : report.ends) EXPECT_TRUE(end.signal == SIGINT || end.signal == SIGTERM);
}

TEST_F(LocalLaunchTest, SucceedsWhenRanksFinishUpOnSigterm) {
  const LaunchReport report =
      launch_locally(shell(1, "trap 'exit 0' TERM; kill -TERM $PPID; while :; do sleep 0.02; done"));
  EXPECT_EQ(report.exit_code, 0);
  EXPECT_EQ(report.interrupted_by, SIGTERM);
}

TEST_F(LocalLaunchTest, KillsAtTheSecondCtrlC) {
  LocalLaunch launch = shell(1, "trap '' INT; kill -INT $PPID; sleep 0.3; kill -INT $PPID; sleep 60");
  launch.grace = std::chrono::seconds(30);
  const LaunchReport report = launch_locally(launch);
  EXPECT_EQ(report.exit_code, 130);
  EXPECT_EQ(report.ends[0].signal, SIGKILL);
}

TEST_F(LocalLaunchTest, LeavesNothingThatARankStarted) {
  launch_locally(shell(1, "sleep 1000 & echo $! > " + (folder_ / "pid").string()));
  const pid_t pid = std::stoi(read("pid"));
  const Deadline deadline = Deadline::after(std::chrono::seconds(10));
  while (is_alive(pid) && !deadline.expired()) usleep(1000);
  EXPECT_FALSE(is_alive(pid));
}

TEST_F(LocalLaunchTest, RefusesAProgramThatIsNotThere) {
  LocalLaunch launch;
  launch.argv = {"trireme-no-such-program"};
  EXPECT_THROW(launch_locally(launch), UsageError);
  launch.argv = {"/etc/passwd"};
  EXPECT_THROW(launch_locally(launch), UsageError);
  launch.argv = {};
  EXPECT_THROW(launch_locally(launch), UsageError);
}

TEST_F(LocalLaunchTest, SaysWhyAProgramDoesNotStart) {
  const auto path = folder_ / "not_a_program";
  std::ofstream(path) << "neither a script nor a binary";
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  LocalLaunch launch;
  launch.num_processes = 2;
  launch.argv = {path};
  try {
    // Where a sanitizer turns vfork() into fork(), the child cannot tell why: its exit code does.
    EXPECT_EQ(launch_locally(launch).exit_code, 127);
  } catch (const SystemError& error) {
    EXPECT_EQ(error.error_number(), ENOEXEC);
  }
}

TEST_F(LocalLaunchTest, PrefixesWholeLines) {
  LocalLaunch launch = shell(2, "printf 'one\\n\\ntwo'; echo three >&2");
  launch.prefix_output = true;
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  launch_locally(launch);
  std::multiset<std::string> lines;
  std::stringstream text(testing::internal::GetCapturedStdout());
  for (std::string line; std::getline(text, line);) lines.insert(line);
  EXPECT_EQ(lines, (std::multiset<std::string>{"[rank 0] one", "[rank 0] ", "[rank 0] two", "[rank 1] one", "[rank 1] ",
                                               "[rank 1] two"}));
  const std::string errors = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(contains(errors, "[rank 0] three\n") && contains(errors, "[rank 1] three\n")) << errors;
}

TEST_F(LocalLaunchTest, LosesNoOutput) {
  LocalLaunch launch =
      shell(2, "i=0; while [ $i -lt 20000 ]; do echo $i; i=$((i+1)); done; head -c 300000 /dev/zero | tr '\\0' x");
  launch.prefix_output = true;
  testing::internal::CaptureStdout();
  EXPECT_EQ(launch_locally(launch).exit_code, 0);
  std::stringstream text(testing::internal::GetCapturedStdout());
  std::map<std::string, int> next;
  size_t num_x = 0;
  for (std::string line; std::getline(text, line);) {
    ASSERT_TRUE(line.starts_with("[rank 0] ") || line.starts_with("[rank 1] ")) << line;
    const std::string rank = line.substr(0, 9), rest = line.substr(9);
    if (rest.starts_with("x")) {
      num_x += rest.size();
    } else {
      ASSERT_EQ(rest, std::to_string(next[rank]++));
    }
  }
  EXPECT_EQ(next["[rank 0] "], 20000);
  EXPECT_EQ(next["[rank 1] "], 20000);
  EXPECT_EQ(num_x, 600000u);
}

TEST_F(LocalLaunchTest, ReportsAFewOfManyFailures) {
  LocalLaunch launch = shell(20, "exit 4");
  launch.grace = std::chrono::seconds(30);
  const LaunchReport report = launch_locally(launch);
  EXPECT_EQ(report.exit_code, 4);
  EXPECT_TRUE(contains(report.text(), "and 11 more ranks failed after it")) << report.text();
}

}  // namespace
}  // namespace trireme
