// Token files: only one's own, closed to all others, are trusted.
#include "trireme/comm/control/token.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "trireme/base/error.h"
#include "trireme/comm/control/control_test_util.h"

namespace trireme {
namespace {

using control::testing::contains;
namespace fs = std::filesystem;

class TokenTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "token-test-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    if (const char* before = std::getenv("XDG_RUNTIME_DIR")) before_ = before;
    ::setenv("XDG_RUNTIME_DIR", folder_.c_str(), 1);
  }
  void TearDown() override {
    if (before_) {
      ::setenv("XDG_RUNTIME_DIR", before_->c_str(), 1);
    } else {
      ::unsetenv("XDG_RUNTIME_DIR");
    }
    fs::remove_all(folder_);
  }

  std::string write(const std::string& name, const std::string& text, mode_t mode) {
    const std::string path = (folder_ / name).string();
    std::ofstream(path) << text;
    ::chmod(path.c_str(), mode);
    return path;
  }
  static std::string error_of(const auto& body) {
    try {
      body();
    } catch (const UsageError& error) {
      return error.what();
    }
    return "nothing was thrown";
  }

  fs::path folder_;
  std::optional<std::string> before_;
};

TEST_F(TokenTest, PublishedFindsItsWayAndIsRemoved) {
  EXPECT_FALSE(find_token("job", 1));
  {
    const TokenFile file = TokenFile::publish("job", 1);
    EXPECT_EQ(file.token().size(), 64u);
    EXPECT_EQ(find_token("job", 1), file.token());
    EXPECT_FALSE(find_token("job", 2));
    EXPECT_FALSE(find_token("other", 1));
    struct stat info {};
    ASSERT_EQ(::stat(file.path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
    ASSERT_EQ(::stat((folder_ / "trireme").c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0700u);
  }
  EXPECT_FALSE(find_token("job", 1));
  EXPECT_TRUE(fs::is_empty(folder_ / "trireme"));
}

TEST_F(TokenTest, ANewOneReplacesAStaleOne) {
  const TokenFile stale = TokenFile::publish("job", 1);
  const TokenFile fresh = TokenFile::publish("job", 1);
  EXPECT_NE(stale.token(), fresh.token());
  EXPECT_EQ(find_token("job", 1), fresh.token());
}

TEST_F(TokenTest, ADirectoryOpenToOthersIsNotUsed) {
  fs::create_directory(folder_ / "trireme");
  ::chmod((folder_ / "trireme").c_str(), 0770);
  const TokenFile file = TokenFile::publish("job of the token test", 1);
  EXPECT_TRUE(contains(file.path(), "/tmp/trireme-"));
  EXPECT_EQ(find_token("job of the token test", 1), file.token());
}

TEST_F(TokenTest, ALinkedDirectoryIsNotUsed) {
  fs::create_directory(folder_ / "elsewhere");
  ::chmod((folder_ / "elsewhere").c_str(), 0700);
  fs::create_directory_symlink(folder_ / "elsewhere", folder_ / "trireme");
  const TokenFile file = TokenFile::publish("job of the token test", 2);
  EXPECT_TRUE(contains(file.path(), "/tmp/trireme-"));
}

TEST_F(TokenTest, APublishedFileOpenedToOthersIsRejected) {
  const TokenFile file = TokenFile::publish("job", 1);
  ::chmod(file.path().c_str(), 0640);
  EXPECT_TRUE(contains(error_of([] { find_token("job", 1); }), "chmod 600"));
}

TEST_F(TokenTest, ANamedFileIsReadWithoutItsLastLineEnd) {
  EXPECT_EQ(read_token_file(write("good", "secret\n", 0600)), "secret");
  EXPECT_EQ(read_token_file(write("readonly", "secret", 0400)), "secret");
}

TEST_F(TokenTest, ANamedFileMustBeClosedToOthers) {
  for (mode_t mode : {0644, 0640, 0604, 0620, 0602, 0610, 0601}) {
    const std::string path = write("open", "secret", mode);
    const std::string error = error_of([&] { read_token_file(path); });
    EXPECT_TRUE(contains(error, "can be read by others"));
    EXPECT_TRUE(contains(error, "chmod 600 " + path));
  }
}

TEST_F(TokenTest, ANamedFileMustBeOneThatHoldsAToken) {
  EXPECT_TRUE(contains(error_of([] { read_token_file("/no/such/file"); }), "No such file"));
  EXPECT_TRUE(contains(error_of([&] { read_token_file(folder_.string()); }), "not a regular file"));
  EXPECT_TRUE(contains(error_of([] { read_token_file("/dev/null"); }), "not a regular file"));
  EXPECT_TRUE(contains(error_of([&] { read_token_file(write("empty", "\n", 0600)); }), "is empty"));
  EXPECT_TRUE(
      contains(error_of([&] { read_token_file(write("large", std::string(5000, 'x'), 0600)); }), "larger than"));
  const std::string pipe = (folder_ / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_TRUE(contains(error_of([&] { read_token_file(pipe); }), "not a regular file"));
  if (::geteuid() == 0) {
    const std::string foreign = write("foreign", "secret", 0600);
    ASSERT_EQ(::chown(foreign.c_str(), 12345, 12345), 0);
    EXPECT_TRUE(contains(error_of([&] { read_token_file(foreign); }), "belongs to user 12345"));
  }
}

}  // namespace
}  // namespace trireme
