#include "trireme/runtime/offload.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "trireme/base/error.h"

namespace trireme {
namespace {

TEST(Offload, IsMemoryLikeAnyOtherAndLeavesNothing) {
  const auto folder = std::filesystem::temp_directory_path() / "trireme-offload-test" / "made";
  {
    torch::Tensor zeros = offloaded_zeros(folder.string(), 100000);
    EXPECT_EQ(zeros.abs().sum().item<float>(), 0);
    zeros.add_(2);
    EXPECT_EQ(zeros.sum().item<float>(), 200000);
    EXPECT_TRUE(std::filesystem::is_empty(folder));
  }
  EXPECT_EQ(offloaded_zeros("", 7).numel(), 7);
  EXPECT_EQ(offloaded_zeros(folder.string(), 0).numel(), 0);
  std::filesystem::remove_all(folder.parent_path());
}

TEST(Offload, SaysWhatIsWrong) {
  const auto error_of = [](const std::string& folder, int64_t count) -> std::string {
    try {
      offloaded_zeros(folder, count);
      return "no error";
    } catch (const UsageError& error) {
      return error.what();
    }
  };
  EXPECT_NE(error_of("/proc/no", 10).find("parallel.offload = /proc/no: cannot create"), std::string::npos);
  // More than any disk has.
  const std::string folder = std::filesystem::temp_directory_path().string();
  EXPECT_NE(error_of(folder, int64_t{1} << 58).find("cannot reserve"), std::string::npos);
}

}  // namespace
}  // namespace trireme
