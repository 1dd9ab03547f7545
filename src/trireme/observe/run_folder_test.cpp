// Numbers that two jobs cannot share, folders that are refused before work starts, and one job at a time.
#include "trireme/observe/run_folder.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <set>
#include <thread>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/fault.h"
#include "trireme/observe/folder_test_util.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

template <typename Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

bool mentions(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(RunFolder, CountsUp) {
  const TestFolder test;
  const fs::path root = test / "deep/runs";
  const RunFolder first = RunFolder::create(root, "default");
  EXPECT_EQ(first.paths().folder, root / "default-1");
  EXPECT_TRUE(fs::is_directory(first.paths().checkpoints()));
  EXPECT_EQ(first.paths().config(), root / "default-1/config.toml");
  EXPECT_EQ(first.paths().events(), root / "default-1/events.jsonl");
  EXPECT_EQ(first.paths().report(), root / "default-1/report.html");
  EXPECT_EQ(fs::read_symlink(root / "latest"), ".latest-default-1");
  for (const char* other : {"default-7", "default-x", "default-8x", "default-", "other-20", "default-99999999999999"}) {
    fs::create_directory(root / other);
  }
  std::ofstream(root / "default-8") << "a file takes its number too";
  EXPECT_EQ(RunFolder::create(root, "default").paths().folder, root / "default-9");
  EXPECT_EQ(fs::read_symlink(root / "latest"), ".latest-default-9");
  EXPECT_FALSE(fs::exists(fs::symlink_status(root / ".latest-default-1"))) << "nobody needs it any more";
  EXPECT_EQ(RunFolder::create(root, "a-b").paths().folder, root / "a-b-1");
}

TEST(RunFolder, JobsAtOnceGetFoldersOfTheirOwn) {
  const TestFolder test;
  std::vector<RunFolder> folders;
  std::mutex mutex;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([&] {
        for (int j = 0; j < 5; ++j) {
          RunFolder folder = RunFolder::create(test.path(), "x");
          const std::lock_guard lock(mutex);
          folders.push_back(std::move(folder));
        }
      });
    }
  }
  std::set<fs::path> names;
  for (const RunFolder& folder : folders) names.insert(folder.paths().folder);
  EXPECT_EQ(names.size(), 40u);
  EXPECT_TRUE(fs::is_symlink(test / "latest"));
  size_t entries = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(test.path())) ++entries;
  EXPECT_EQ(entries, 42u) << "the runs, the link to the newest, and the links in it: nothing else is left";
}

TEST(RunFolder, OneJobAtATime) {
  const TestFolder test;
  {
    const RunFolder folder = RunFolder::open(test / "mine");
    const std::string error = error_of([&] { RunFolder::open(test / "mine"); });
    EXPECT_TRUE(mentions(error, (test / "mine").string() + " is in use by pid " + std::to_string(::getpid()) + " on "))
        << error;
    EXPECT_TRUE(mentions(error, "--observe.run_dir")) << error;
  }
  RunFolder again = RunFolder::open(test / "mine");
  RunFolder moved = std::move(again);
  EXPECT_TRUE(mentions(error_of([&] { RunFolder::open(test / "mine"); }), "in use by pid"));
  moved = RunFolder::open(test / "other");
  EXPECT_EQ(moved.paths().folder, test / "other");
}

TEST(RunFolder, ADeadJobHoldsNothing) {
  const TestFolder test;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const RunFolder folder = RunFolder::open(test / "mine");
    if (::write(ready[1], "x", 1) != 1) ::_exit(1);
    while (true) ::pause();
  }
  char byte;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  const std::string error = error_of([&] { RunFolder::open(test / "mine"); });
  EXPECT_TRUE(mentions(error, "pid " + std::to_string(child))) << error;
  ::kill(child, SIGKILL);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(error_of([&] { RunFolder::open(test / "mine"); }), "no error");
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST(RunFolder, SaysBeforeWorkThatItCannotWrite) {
  const TestFolder test;
  std::ofstream(test / "file") << "x";
  fs::create_symlink("nowhere", test / "link");
  for (const char* name : {"file", "file/below", "link"}) {
    for (const std::string& error :
         {error_of([&] { RunFolder::open(test / name); }), error_of([&] { RunFolder::create(test / name, "x"); })}) {
      EXPECT_TRUE(mentions(error, (test / name).string())) << error;
      EXPECT_TRUE(mentions(error, "--observe.run_dir")) << error;
    }
  }
  for (const char* point : {"run_folder.mkdir", "run_folder.write"}) {
    set_faults(std::string("point=") + point + ",kind=errno:ENOSPC");
    const std::string error = error_of([&] { RunFolder::create(test / "runs", "x"); });
    set_faults("");
    EXPECT_TRUE(mentions(error, "No space left on device")) << error;
    EXPECT_TRUE(mentions(error, "--observe.run_dir")) << error;
  }
  EXPECT_EQ(error_of([&] { RunFolder::create(test / "runs", "x"); }), "no error");
}

TEST(RunFolder, WithoutLocksThereIsAWarning) {
  const TestFolder test;
  set_faults("point=run_folder.lock,kind=errno:ENOLCK");
  testing::internal::CaptureStderr();
  const std::string error = error_of([&] { RunFolder::open(test / "mine"); });
  set_faults("");
  EXPECT_EQ(error, "no error");
  EXPECT_TRUE(mentions(testing::internal::GetCapturedStderr(), "cannot be locked"));
}

TEST(RunFolder, NamesThatAreNoFolder) {
  const TestFolder test;
  for (const std::string& name :
       {std::string(), std::string("a/b"), std::string(".."), std::string("a\0b", 3), std::string(300, 'x')}) {
    EXPECT_THROW(RunFolder::create(test.path(), name), UsageError) << name;
  }
}

TEST(RunFolder, LatestLeadsToTheFilesOfTheNewestRun) {
  const TestFolder test;
  RunFolder::create(test.path(), "x");
  const RunFolder second = RunFolder::create(test.path(), "x");
  std::ofstream(second.paths().report()) << "second";
  std::string seen;
  std::ifstream(test / "latest/report.html") >> seen;
  EXPECT_EQ(seen, "second");
  EXPECT_TRUE(fs::is_directory(test / "latest/checkpoints"));
  EXPECT_EQ(fs::weakly_canonical(run_at(test / "latest").folder), fs::weakly_canonical(second.paths().folder));
  EXPECT_EQ(run_at(second.paths().folder), second.paths());
  EXPECT_EQ(run_at(test / "nowhere").folder, test / "nowhere");
  // TensorBoard follows links, and shows each folder with its files as a run.
  fs::create_directory(second.paths().tensorboard());
  std::ofstream(second.paths().tensorboard() / "events.out.tfevents.1") << "x";
  size_t found = 0;
  const auto follow = fs::directory_options::follow_directory_symlink;
  for (const auto& entry : fs::recursive_directory_iterator(test.path(), follow)) {
    found += entry.path().filename().string().find("tfevents") != std::string::npos;
  }
  EXPECT_EQ(found, 1u);
}

TEST(RunFolder, LeavesAFolderNamedLatest) {
  const TestFolder test;
  fs::create_directory(test / "latest");
  RunFolder::create(test.path(), "x");
  EXPECT_TRUE(fs::is_directory(fs::symlink_status(test / "latest")));
}

}  // namespace
}  // namespace trireme
