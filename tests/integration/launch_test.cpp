// `trireme launch` as its users meet it: exit codes, messages, signals from outside, and nothing left behind.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "support/paths.h"
#include "trireme/base/deadline.h"

namespace trireme {
namespace {

using std::chrono::seconds;

/// A `trireme launch` under way, with its output in files.
class Launch {
 public:
  Launch(std::vector<std::string> flags, const std::string& script) {
    char name[] = "/tmp/trireme-launch-XXXXXX";
    folder = mkdtemp(name);
    std::vector<std::string> words = {program_path("trireme"), "launch"};
    words.insert(words.end(), flags.begin(), flags.end());
    words.insert(words.end(), {"--", "sh", "-c", script});
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    setenv("FOLDER", folder.c_str(), 1);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, (folder / "out").c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
    posix_spawn_file_actions_addopen(&actions, 2, (folder / "err").c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
    // A shell's background jobs ignore Ctrl-C, and so would the launcher.
    sigset_t interrupt;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigdefault(&attributes, &interrupt);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    EXPECT_EQ(posix_spawn(&pid, argv[0], &actions, &attributes, argv.data(), environ), 0);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
  }
  ~Launch() {
    if (pid > 0) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
    std::filesystem::remove_all(folder);
  }

  /// The exit code, 128 + signal for a launcher that was killed itself.
  int wait() {
    int status = 0;
    const Deadline deadline = Deadline::after(seconds(60));
    while (waitpid(pid, &status, WNOHANG) == 0) {
      if (deadline.expired()) {
        ADD_FAILURE() << "the launcher does not end";
        return -1;
      }
      usleep(2000);
    }
    pid = -1;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

  std::string read(const std::string& name) const {
    std::ifstream file(folder / name);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

  /// Waits until `name` holds so many words, and returns them.
  std::vector<std::string> words(const std::string& name, size_t count) const {
    const Deadline deadline = Deadline::after(seconds(30));
    for (;;) {
      std::stringstream text(read(name));
      std::vector<std::string> found{std::istream_iterator<std::string>(text), {}};
      if (found.size() >= count) return found;
      if (deadline.expired()) {
        ADD_FAILURE() << "only " << found.size() << " of " << count << " words in " << name;
        return found;
      }
      usleep(2000);
    }
  }

  std::filesystem::path folder;
  pid_t pid = -1;
};

/// True while the process runs; a dead one that nobody has waited for does not count.
bool is_alive(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t end = text.rfind(')');
  return end != text.npos && text[end + 2] != 'Z';
}

void expect_gone(const std::vector<std::string>& pids) {
  const Deadline deadline = Deadline::after(seconds(10));
  for (const std::string& pid : pids) {
    while (is_alive(pid) && !deadline.expired()) usleep(1000);
    EXPECT_FALSE(is_alive(pid)) << "process " << pid << " is left";
  }
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

TEST(LaunchTest, PassesOutputAndSuccessThrough) {
  Launch launch({"--nproc-per-node", "2"}, "echo rank-$TRIREME_RANK-of-$TRIREME_WORLD_SIZE");
  EXPECT_EQ(launch.wait(), 0);
  const std::string out = launch.read("out");
  EXPECT_TRUE(contains(out, "rank-0-of-2\n") && contains(out, "rank-1-of-2\n")) << out;
  EXPECT_EQ(launch.read("err"), "");
}

TEST(LaunchTest, ReportsWhoFailedFirst) {
  Launch launch({"--nproc-per-node", "3", "--grace", "100ms"}, "[ $TRIREME_RANK = 2 ] && exit 5; exec sleep 60");
  EXPECT_EQ(launch.wait(), 5);
  const std::string err = launch.read("err");
  EXPECT_TRUE(err.starts_with("error: rank 2 (pid ")) << err;
  EXPECT_TRUE(contains(err, "ended with exit code 5")) << err;
}

TEST(LaunchTest, ReportsWhoWasKilled) {
  Launch launch({"--nproc-per-node", "2", "--grace", "100ms"}, "echo $$ > $FOLDER/$TRIREME_RANK; exec sleep 60");
  const std::string victim = launch.words("1", 1).at(0);
  launch.words("0", 1);
  kill(std::stoi(victim), SIGKILL);
  EXPECT_EQ(launch.wait(), 137);
  EXPECT_TRUE(contains(launch.read("err"), "rank 1 (pid " + victim + ") was killed by SIGKILL")) << launch.read("err");
}

TEST(LaunchTest, EndsWithCtrlC) {
  Launch launch({"--nproc-per-node", "2"}, "echo $$ >> $FOLDER/pids; exec sleep 60");
  const auto pids = launch.words("pids", 2);
  kill(launch.pid, SIGINT);
  EXPECT_EQ(launch.wait(), 130);
  expect_gone(pids);
}

TEST(LaunchTest, HandsSigtermToTheRanks) {
  Launch launch(
      {"--nproc-per-node", "2"},
      "trap 'echo saved >> $FOLDER/saved; exit 0' TERM; echo $$ >> $FOLDER/pids; while :; do sleep 0.02; done");
  launch.words("pids", 2);
  kill(launch.pid, SIGTERM);
  EXPECT_EQ(launch.wait(), 0);
  EXPECT_EQ(launch.read("saved"), "saved\nsaved\n");
}

TEST(LaunchTest, LeavesNothingWhenItIsKilled) {
  // Each rank has a child of its own.
  Launch launch({"--nproc-per-node", "4"}, "sleep 1000 & echo $$ $! >> $FOLDER/pids; wait");
  const auto pids = launch.words("pids", 8);
  for (const std::string& pid : pids) EXPECT_TRUE(is_alive(pid));
  kill(launch.pid, SIGKILL);
  EXPECT_EQ(launch.wait(), 137);
  expect_gone(pids);
}

TEST(LaunchTest, LeavesNothingWhenItIsKilledWithPrefixes) {
  Launch launch({"--nproc-per-node", "2", "--prefix"}, "sleep 1000 & echo $$ $! >> $FOLDER/pids; wait");
  const auto pids = launch.words("pids", 4);
  kill(launch.pid, SIGKILL);
  launch.wait();
  expect_gone(pids);
}

TEST(LaunchTest, KeepsItsTimeout) {
  Launch launch({"--nproc-per-node", "2", "--timeout", "300ms"}, "exec sleep 60");
  EXPECT_EQ(launch.wait(), 124);
  EXPECT_TRUE(contains(launch.read("err"), "did not end in time")) << launch.read("err");
}

TEST(LaunchTest, StartsTwoHundredProcesses) {
  Launch launch({"--nproc-per-node", "200"}, "echo $TRIREME_RANK");
  EXPECT_EQ(launch.wait(), 0);
  EXPECT_EQ(launch.words("out", 200).size(), 200u);
}

}  // namespace
}  // namespace trireme
