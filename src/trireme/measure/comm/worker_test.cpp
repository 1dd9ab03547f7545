// Ranks as threads answer commands, and nobody is asked twice after the end of the input.
#include "trireme/measure/comm/worker.h"

#include <gtest/gtest.h>

#include <sstream>

#include "trireme/measure/comm/explain.h"

namespace trireme::measure {
namespace {

std::vector<std::string> answers_to(int ranks, const std::string& commands) {
  std::istringstream in(commands);
  std::ostringstream out;
  run_comm_worker(ranks, /*bind=*/false, in, out);
  std::vector<std::string> lines;
  std::istringstream said(out.str());
  for (std::string line; std::getline(said, line);) lines.push_back(line);
  return lines;
}

TEST(CommWorker, AnswersEveryKindOfCommand) {
  const auto lines = answers_to(2,
                                "measure all-reduce ring user 4096 3\nmeasure all-to-all auto registered 4096 2\n"
                                "exchange 256 4\nbarrier 5\ncombine 16384\ncopy 16384\n");
  ASSERT_EQ(lines.size(), 7u);
  EXPECT_EQ(lines[0], "ready threads");
  const auto times = [&](size_t i, std::string* algorithm = nullptr) {
    EXPECT_TRUE(lines[i].starts_with("ok ")) << lines[i];
    return parse_times(lines[i].substr(3), algorithm, "");
  };
  std::string algorithm;
  EXPECT_EQ(times(1, &algorithm).size(), 3u);
  EXPECT_EQ(algorithm, "ring");
  EXPECT_EQ(times(2, &algorithm).size(), 2u);
  EXPECT_EQ(times(3).size(), 4u);
  EXPECT_EQ(times(4).size(), 5u);
  EXPECT_EQ(times(5).size(), 5u);
  EXPECT_EQ(times(6).size(), 5u);
}

TEST(CommWorker, CountsWhatAnAlgorithmSends) {
  const auto lines = answers_to(3, "traffic sequential 1200\n");
  ASSERT_EQ(lines.size(), 2u);
  const auto [root, others] = parse_traffic(lines[1].substr(3));
  EXPECT_EQ(root.bytes, 2400);
  EXPECT_EQ(others.bytes, 1200);
}

TEST(CommWorker, RefusesWhatItCannotDoAndGoesOn) {
  const auto lines = answers_to(2, "dance 5\nmeasure all-reduce no-such-one user 8 1\nbarrier 1\n");
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[1], "error no such command: dance 5");
  EXPECT_TRUE(lines[2].starts_with("error ")) << lines[2];
  EXPECT_TRUE(lines[3].starts_with("ok ")) << lines[3];
}

}  // namespace
}  // namespace trireme::measure
