// Every collective among ranks that are processes: over shared memory, over TCP, and over both at once.
#include <gtest/gtest.h>

#include <cstdlib>
#include <regex>

#include "support/checksum.h"
#include "support/local_job.h"
#include "support/paths.h"
#include "trireme/comm/world.h"

namespace trireme {
namespace {

const std::string kCollectives = program_path("collectives_program");
const std::string kChecksum = program_path("checksum_program");

struct Hosts {
  const char* name;
  std::vector<int> host_of_rank;
  const char* transport;
};

void expect_all_right(const LocalJob& job, const std::string& transport) {
  const JobResult result = run_job(job);
  EXPECT_EQ(result.exit_code, 0) << result.output;
  const size_t ranks = job.num_ranks > 0 ? static_cast<size_t>(job.num_ranks) : job.host_of_rank.size();
  const std::string wanted = "all right: " + std::to_string(ranks) + " ranks over " + transport + "\n";
  EXPECT_NE(result.output.find(wanted), std::string::npos) << result.output;
}

class OneHost : public testing::TestWithParam<int> {
 protected:
  /// All types with few ranks, the short form with many: more would be slow and show no more.
  LocalJob job() const {
    LocalJob job;
    job.num_ranks = GetParam();
    job.argv = {kCollectives};
    if (GetParam() > 3) job.argv.push_back("short");
    return job;
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, OneHost,
                         testing::ValuesIn(sanitized() ? std::vector<int>{2, 3} : std::vector<int>{2, 3, 4, 5, 8}),
                         testing::PrintToStringParamName());

TEST_P(OneHost, SharedMemory) { expect_all_right(job(), "shared memory"); }

TEST_P(OneHost, Tcp) {
  LocalJob over_tcp = job();
  over_tcp.environment["TRIREME_TRANSPORT"] = "tcp";
  expect_all_right(over_tcp, "tcp");
}

class MixedHosts : public testing::TestWithParam<Hosts> {};

std::vector<Hosts> layouts() {
  std::vector<Hosts> all{{"two_and_three", {0, 0, 1, 1, 1}, "shared memory + tcp"},  // not aligned
                         {"two_and_two", {0, 0, 1, 1}, "shared memory + tcp"},
                         {"four_and_two", {0, 0, 0, 0, 1, 1}, "shared memory + tcp"},
                         {"two_two_and_one", {0, 0, 1, 1, 2}, "shared memory + tcp"},
                         {"in_turn", {0, 1, 0, 1}, "shared memory + tcp"},  // not aligned
                         {"each_alone", {0, 1, 2}, "tcp"}};
  if (sanitized()) all.resize(1);
  return all;
}
INSTANTIATE_TEST_SUITE_P(Layouts, MixedHosts, testing::ValuesIn(layouts()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(MixedHosts, Everything) {
  LocalJob job;
  job.host_of_rank = GetParam().host_of_rank;
  job.argv = {kCollectives, "short"};
  expect_all_right(job, GetParam().transport);
}

std::string checksum_in(const std::string& output) {
  std::smatch match;
  return std::regex_search(output, match, std::regex("checksum ([0-9a-f]{16}) of")) ? match[1].str() : output;
}

std::string checksum_of_threads(int ranks) {
  uint64_t checksum = 0;
  run_as_threads(ranks, [&](World& world) {
    const uint64_t mine = checksum_of_all_reduces(world.comm());
    if (world.rank() == 0) checksum = mine;
  });
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(checksum));
  return text;
}

TEST(SameBits, OnEveryTransport) {
  for (const int ranks : sanitized() ? std::vector<int>{3} : std::vector<int>{2, 3, 4, 5, 6}) {
    const std::string threads = checksum_of_threads(ranks);
    LocalJob job;
    job.num_ranks = ranks;
    job.argv = {kChecksum};
    EXPECT_EQ(checksum_in(run_job(job).output), threads) << "shared memory";
    job.environment["TRIREME_TRANSPORT"] = "tcp";
    EXPECT_EQ(checksum_in(run_job(job).output), threads) << "tcp";
  }
}

TEST(SameBits, OnMixedHosts) {
  std::vector<std::vector<int>> layouts{
      {0, 0, 1, 1}, {0, 1, 0, 1}, {0, 0, 1, 1, 1}, {0, 0, 1, 1, 2}, {0, 0, 0, 0, 1, 1}};
  if (sanitized()) layouts.resize(1);
  for (const std::vector<int>& hosts : layouts) {
    const std::string threads = checksum_of_threads(static_cast<int>(hosts.size()));
    LocalJob job;
    job.host_of_rank = hosts;
    job.argv = {kChecksum};
    EXPECT_EQ(checksum_in(run_job(job).output), threads) << testing::PrintToString(hosts);
    // Whatever the tuner would take: two levels keep the order where hosts are aligned, and are passed over otherwise.
    job.environment["TRIREME_ALGORITHM"] = "two-level";
    EXPECT_EQ(checksum_in(run_job(job).output), threads) << "two-level, " << testing::PrintToString(hosts);
  }
}

TEST(Memory, DoesNotGrowWithTheNumberOfCalls) {
  LocalJob job;
  job.host_of_rank = {0, 0, 1, 1};
  job.argv = {kChecksum, "repeat", "200"};
  for (const char* algorithm : {"two-level", "ordered", "butterfly"}) {
    job.environment["TRIREME_ALGORITHM"] = algorithm;
    const JobResult result = run_job(job);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    const std::regex line("rank [0-9]+ grew by (-?[0-9]+) KiB");
    int ranks = 0;
    for (std::sregex_iterator i(result.output.begin(), result.output.end(), line), end; i != end; ++i, ++ranks) {
      EXPECT_LT(std::stol((*i)[1]), 8 * 1024) << algorithm << ": " << result.output;
    }
    EXPECT_EQ(ranks, 4) << result.output;
  }
}

}  // namespace
}  // namespace trireme
