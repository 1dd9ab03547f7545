#include "trireme/measure/probe.h"

#include <gtest/gtest.h>

#include <fstream>

#include "trireme/observe/folder_test_util.h"

namespace trireme::measure {
namespace {

Deadline soon() { return Deadline::after(std::chrono::seconds(20)); }

TEST(GpuCards, AreReadFromNvidiaSmi) {
  const auto cards =
      parse_gpu_cards("NVIDIA H200, 143771, 9.0, 580.95.05\nNVIDIA A100-SXM4-80GB, 81920, 8.0, 580.95.05\n");
  ASSERT_EQ(cards.size(), 2u);
  EXPECT_EQ(cards[0].name, "NVIDIA H200");
  EXPECT_EQ(cards[0].memory_bytes, uint64_t{143771} << 20);
  EXPECT_EQ(cards[0].compute_capability, "9.0");
  EXPECT_EQ(cards[1].driver, "580.95.05");
}

TEST(GpuCards, OtherTextIsNone) {
  EXPECT_TRUE(parse_gpu_cards("").empty());
  EXPECT_TRUE(parse_gpu_cards("No devices were found\n").empty());
  EXPECT_TRUE(parse_gpu_cards("NVIDIA-SMI has failed, because it, could not, talk\n").empty());
  EXPECT_TRUE(parse_gpu_cards("NVIDIA H200, [N/A], 9.0, 1\n").empty());
}

TEST(Question, ReadsTheAnswerInTime) {
  const std::string shell = find_in_path("sh");
  Question two(shell, {"-c", "echo one; echo two"});
  EXPECT_EQ(two.answer(soon()), "one\ntwo\n");
  Question never(shell, {"-c", "echo first; exec sleep 100"});
  std::string said;
  for (const Deadline deadline = soon(); said.empty() && !deadline.expired();) {
    said = never.answer(Deadline::after(std::chrono::milliseconds(20)));
  }
  EXPECT_EQ(said, "first\n") << "before its end";
  Question nobody("", {});
  EXPECT_EQ(nobody.answer(soon()), "");
  Question missing("/no/such/program", {});
  EXPECT_EQ(missing.answer(soon()), "");
}

TEST(LibraryFolders, AreThoseOfTheRunpath) {
  const TestFolder folder;
  std::ofstream(folder / "program") << std::string(
      "\x7f"
      "ELF\0text\0$ORIGIN/../lib:/opt/torch/lib\0$ORIGIN/no",
      51);
  const std::string here = folder.path().string();
  EXPECT_EQ(library_folders((folder / "program").string()),
            (std::vector<std::string>{here + "/../lib", "/opt/torch/lib"}));
  EXPECT_TRUE(library_folders((folder / "missing").string()).empty());
}

}  // namespace
}  // namespace trireme::measure
