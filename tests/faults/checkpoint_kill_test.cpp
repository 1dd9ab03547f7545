// kill -9 before each system call of a save: the step that was committed loads, and the next save works.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "trireme/checkpoint/checkpoint_test_util.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

/// How a child ended that ran this.
template <typename Call>
int ended(Call&& call) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      call();
    } catch (...) {
      ::_exit(9);
    }
    ::_exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status;
}

TEST(CheckpointKill, BeforeEachSystemCall) {
  const TemporaryFolder folder;
  const fs::path root = folder.path() / "checkpoints";
  save_step(root, 1);
  uint64_t committed = 1;
  int num_kills = 0;
  for (int call = 1;; ++call) {
    const uint64_t next = committed + 1;
    const int status = ended([&] {
      set_faults(fmt::format("point=file.call,kind=kill,count={}", call));
      save_step(root, next, 2);
    });
    const Finding finding = find_newest(root);
    ASSERT_TRUE(finding.newest) << "killed before call " << call;
    ASSERT_TRUE(finding.damaged.empty()) << finding.damaged.front().damage.text();
    ASSERT_GE(finding.newest->step, committed) << "killed before call " << call;
    ASSERT_LE(finding.newest->step, next);
    expect_step(finding.newest->path, finding.newest->step);
    committed = finding.newest->step;
    if (!WIFSIGNALED(status)) {
      ASSERT_EQ(status, 0);
      ASSERT_EQ(committed, next);
      break;
    }
    ASSERT_EQ(WTERMSIG(status), SIGKILL);
    ++num_kills;
  }
  EXPECT_GT(num_kills, 25);
  save_step(root, committed + 1, 1);
  EXPECT_EQ(std::distance(fs::directory_iterator(root), {}), 2);  // the checkpoint and the lock
  fmt::print("{} kills\n", num_kills);
}

TEST(CheckpointKill, AtRandomMomentsOfALargerSave) {
  const TemporaryFolder folder;
  const fs::path root = folder.path();
  const std::vector<OwnedTensor> model = {make_tensor("a", {1500, 1000}), make_tensor("b", {200, 1000})};
  const auto save = [&](uint64_t step) { save_checkpoint(root, step, as_shard(model), kMeta, 2); };
  save(1);
  const Philox random(8, "kill");
  uint64_t committed = 1;
  for (uint64_t trial = 0; trial < 60; ++trial) {
    const pid_t child = ::fork();
    if (child == 0) {
      for (uint64_t step = committed + 1;; ++step) save(step);
    }
    ::usleep(static_cast<useconds_t>(random.below(20000, trial)));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const Finding finding = find_newest(root);
    ASSERT_TRUE(finding.newest);
    ASSERT_TRUE(finding.damaged.empty()) << finding.damaged.front().damage.text();
    ASSERT_GE(finding.newest->step, committed);
    committed = finding.newest->step;
  }
  EXPECT_GT(committed, 1U);
}

TEST(CheckpointKill, ALiveSaveIsLeftAloneAndADeadOneIsNot) {
  const TemporaryFolder folder;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const PendingCheckpoint pending = PendingCheckpoint::begin(folder.path(), 1);
    (void)!::write(ready[1], "x", 1);
    for (;;) ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  const std::string message = message_of([&] { save_step(folder.path(), 2); });
  EXPECT_TRUE(contains(message, fmt::format("is being saved to by process {} on ", child))) << message;
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 2);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  save_step(folder.path(), 2);
  expect_step(folder.path() / "step-000002", 2);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 2);
  ::close(ready[0]);
  ::close(ready[1]);
}

}  // namespace
}  // namespace trireme
