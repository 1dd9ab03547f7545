// Calls to the file system: what they do, what they refuse, and how they fail on demand.
#include "trireme/base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/fault.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

class FileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "trireme-file-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override {
    set_faults("");
    set_file_observer({});
    set_pretended_space(std::nullopt);
    fs::remove_all(folder_);
  }
  fs::path folder_;
};

/// The errno that the call throws, or 0.
template <typename Call>
int error_of(Call&& call) {
  try {
    call();
  } catch (const SystemError& error) {
    return error.error_number();
  }
  return 0;
}

TEST_F(FileTest, WritesAndReads) {
  const fs::path path = folder_ / "a";
  {
    File file = File::create(path);
    file.write("hello ");
    file.write("there");
    file.sync();
    EXPECT_EQ(file.num_bytes(), 11U);
  }
  EXPECT_EQ(read_whole_file(path, 11), "hello there");
  EXPECT_THROW(read_whole_file(path, 10), Error);
  std::vector<std::byte> bytes(20);
  EXPECT_EQ(File::open(path).read_at(6, bytes), 5U);
  EXPECT_EQ(error_of([&] { File::create(path); }), EEXIST);
  EXPECT_EQ(error_of([&] { File::open(folder_ / "b"); }), ENOENT);
}

TEST_F(FileTest, OnlyRegularFilesAreRead) {
  fs::create_symlink("/etc/passwd", folder_ / "link");
  EXPECT_EQ(error_of([&] { File::open(folder_ / "link"); }), ELOOP);
  EXPECT_EQ(error_of([&] { File::create(folder_ / "link"); }), EEXIST);
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(error_of([&] { File::open(folder_ / "pipe"); }), EINVAL);
  EXPECT_EQ(error_of([&] { File::open(folder_); }), EINVAL);
}

TEST_F(FileTest, FoldersRenamesAndRemoval) {
  make_folders(folder_ / "a" / "b" / "c");
  EXPECT_FALSE(make_folder(folder_ / "a"));
  File::create(folder_ / "a" / "b" / "file").write("x");
  fs::create_directories(folder_ / "outside");
  File::create(folder_ / "outside" / "kept").write("y");
  fs::create_directory_symlink(folder_ / "outside", folder_ / "a" / "link");
  rename_path(folder_ / "a", folder_ / "z");
  exchange_paths(folder_ / "z", folder_ / "outside");
  EXPECT_TRUE(fs::exists(folder_ / "z" / "kept"));
  remove_tree(folder_ / "outside");
  remove_tree(folder_ / "outside");
  EXPECT_FALSE(fs::exists(folder_ / "outside"));
  EXPECT_TRUE(fs::exists(folder_ / "z" / "kept")) << "a link was followed";
}

TEST_F(FileTest, EveryCallCanBeMadeToFail) {
  File file = File::create(folder_ / "a");
  const auto fails = [&](const char* point, auto&& call) {
    set_faults(std::string("kind=errno:EIO,point=") + point);
    EXPECT_EQ(error_of(call), EIO) << point;
    set_faults("");
  };
  std::vector<std::byte> bytes(1);
  fails("file.call", [&] { file.write("x"); });
  fails("file.open", [&] { File::create(folder_ / "b"); });
  fails("file.write", [&] { file.write("x"); });
  fails("file.sync", [&] { file.sync(); });
  fails("file.read", [&] { (void)file.read_at(0, bytes); });
  fails("file.make_folder", [&] { make_folder(folder_ / "c"); });
  fails("file.sync_folder", [&] { sync_folder(folder_); });
  fails("file.rename", [&] { rename_path(folder_ / "a", folder_ / "d"); });
  fails("file.remove", [&] { remove_file(folder_ / "a"); });
  EXPECT_TRUE(fs::exists(folder_ / "a"));
  EXPECT_FALSE(fs::exists(folder_ / "b") || fs::exists(folder_ / "c"));
}

TEST_F(FileTest, APretendedDiskFillsUpAtItsByte) {
  set_pretended_space(5);
  EXPECT_LE(free_bytes(folder_), 5U);
  File file = File::create(folder_ / "a");
  file.write("abc");
  EXPECT_EQ(error_of([&] { file.write("defg"); }), ENOSPC);
  EXPECT_EQ(fs::file_size(folder_ / "a"), 5U);
}

TEST_F(FileTest, ChangesAreWatched) {
  std::vector<FileEvent> events;
  set_file_observer([&](const FileEvent& event) { events.push_back(event); });
  File file = File::create(folder_ / "a");
  file.write("ab");
  file.write("c");
  file.sync();
  rename_path(folder_ / "a", folder_ / "b");
  sync_folder(folder_);
  remove_file(folder_ / "b");
  using Kind = FileEvent::Kind;
  std::vector<Kind> kinds;
  for (const FileEvent& event : events) kinds.push_back(event.kind);
  EXPECT_EQ(kinds, (std::vector<Kind>{Kind::kCreate, Kind::kWrite, Kind::kWrite, Kind::kSync, Kind::kRename,
                                      Kind::kSyncFolder, Kind::kRemove}));
  EXPECT_EQ(events[2].offset, 2U);
  EXPECT_EQ(events[2].bytes, "c");
}

}  // namespace
}  // namespace trireme
