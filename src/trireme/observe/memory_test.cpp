// What the system says of this process, and texts that only look like it.
#include "trireme/observe/memory.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace trireme {
namespace {

TEST(Memory, GrowsWithWhatIsTouched) {
  const ProcessMemory before = process_memory();
  EXPECT_GT(before.now_bytes, 1u << 20);
  EXPECT_GE(before.peak_bytes, before.now_bytes);
  constexpr size_t kSize = 64 << 20;
  {
    std::vector<char> block(kSize, 1);
    const ProcessMemory with = process_memory();
    EXPECT_GT(with.now_bytes, before.now_bytes + kSize / 2);
    EXPECT_EQ(block[kSize / 2], 1);
  }
  EXPECT_GT(process_memory().peak_bytes, before.now_bytes + kSize / 2);
}

TEST(Memory, Parses) {
  const ProcessMemory memory = parse_memory_status("Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t 1024 kB\n");
  EXPECT_EQ(memory.now_bytes, 1u << 20);
  EXPECT_EQ(memory.peak_bytes, 2u << 20);
  for (const char* text : {"", "VmRSS:", "VmRSS: kB", "VmRSS: -5 kB", "VmRSS: 5 MB", "VmRSS: 99999999999999999999 kB",
                           "VmRSS: 18446744073709551615 kB", "XVmRSS: 5 kB"}) {
    EXPECT_EQ(parse_memory_status(text).now_bytes, 0u) << text;
  }
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::string text = "VmRSS:\t 1024 kB\nVmHWM:\t    2048 kB\n";
    for (int j = 0; j < 4; ++j) text[random() % text.size()] = static_cast<char>(random());
    parse_memory_status(text);
  }
}

}  // namespace
}  // namespace trireme
