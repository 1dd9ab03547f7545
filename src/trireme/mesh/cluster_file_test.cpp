// Saving and loading, what a bad file says, and which entry answers.
#include "trireme/mesh/cluster_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "trireme/base/error.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

class ClusterFileTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::path pattern = fs::temp_directory_path() / "trireme-cluster-XXXXXX";
    std::string text = pattern.string();
    ASSERT_NE(mkdtemp(text.data()), nullptr);
    folder_ = text;
  }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path folder_;
};

ClusterFile example() {
  ClusterFile file;
  file.host = "node-a";
  file.cores = 2;
  file.date = "2026-03-01";
  file.transports = {{"tcp", 2, {20.5, 4e-4}, 1e-4, 30, 2e-4}, {"tcp", 8, {25, 5e-4}, 1e-4, 60, 2e-4}};
  return file;
}

std::string refusal(std::string text, const std::string& from = "", const std::string& to = "") {
  if (!from.empty()) {
    const size_t at = text.find(from);
    if (at == std::string::npos) return "nothing to replace";
    text.replace(at, from.size(), to);
  }
  try {
    ClusterFile::from_json(text, "c.json");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST_F(ClusterFileTest, RoundTrip) {
  const fs::path path = folder_ / "new" / "folder" / "cluster.json";
  example().save(path);
  EXPECT_EQ(ClusterFile::load(path), example());
  ClusterFile::defaults().save(path);
  EXPECT_EQ(ClusterFile::load(path), ClusterFile::defaults());
  EXPECT_EQ(std::distance(fs::directory_iterator(path.parent_path()), {}), 1) << "no temporary file stays";
}

TEST_F(ClusterFileTest, FailureToSaveLeavesNothing) {
  fs::create_directory(folder_ / "taken");
  std::ofstream(folder_ / "taken" / "x") << "x";
  EXPECT_THROW(example().save(folder_ / "taken"), SystemError);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
  std::ofstream(folder_ / "file") << "x";
  EXPECT_THROW(example().save(folder_ / "file" / "cluster.json"), SystemError);
}

TEST_F(ClusterFileTest, Missing) {
  const fs::path path = folder_ / "none.json";
  try {
    ClusterFile::load(path);
    FAIL();
  } catch (const SystemError& error) {
    EXPECT_NE(std::string(error.what()).find("--write-cluster " + path.string()), std::string::npos) << error.what();
  }
  EXPECT_EQ(ClusterFile::load_or_defaults(path), ClusterFile::defaults());
  EXPECT_EQ(ClusterFile::load_or_defaults(fs::path()), ClusterFile::defaults());
}

TEST_F(ClusterFileTest, LoadOrDefaultsMerges) {
  const fs::path path = folder_ / "c.json";
  example().save(path);
  const ClusterFile file = ClusterFile::load_or_defaults(path);
  EXPECT_EQ(file.cost("tcp", 2), example().transports[0]);
  EXPECT_EQ(file.cost("mpi", 2).ranks, 0);
  EXPECT_EQ(file.host, "node-a");
}

TEST_F(ClusterFileTest, TooLarge) {
  const fs::path path = folder_ / "large.json";
  std::ofstream(path) << "x";
  fs::resize_file(path, (16u << 20) + 1);
  EXPECT_THROW(ClusterFile::load(path), Error);
  EXPECT_THROW(ClusterFile::load(folder_), SystemError);
}

TEST_F(ClusterFileTest, BadFilesNameTheKey) {
  const std::string good = example().to_json();
  EXPECT_EQ(refusal(good), "accepted");
  EXPECT_EQ(refusal(good, "\"host\"", "\"extra\": {}, \"host\""), "accepted");
  EXPECT_NE(refusal(good, "\"version\": 1", "\"version\": 2").find("c.json: version 2 is not known"),
            std::string::npos);
  EXPECT_NE(refusal(good, "\"version\": 1", "\"version\": -1").find("\"version\" must be a whole number from 0"),
            std::string::npos);
  EXPECT_NE(refusal(good, "\"version\"", "\"v\"").find("c.json: \"version\" is missing"), std::string::npos);
  EXPECT_NE(refusal(good, "\"latency_us\": 20.5", "\"latency_us\": -1").find("\"latency_us\" = -1 must not"),
            std::string::npos);
  EXPECT_NE(refusal(good, "\"latency_us\": 20.5", "\"latency_us\": null")
                .find("\"latency_us\" of transports[0] must be a number"),
            std::string::npos);
  EXPECT_NE(refusal(good, "\"latency_us\": 20.5,", "").find("\"latency_us\" of transports[0] is missing"),
            std::string::npos);
  EXPECT_NE(refusal(good, "\"ranks\": 8", "\"ranks\": 8.5").find("\"ranks\" of transports[1] must be a whole"),
            std::string::npos);
  EXPECT_NE(refusal(good, "\"ranks\": 8", "\"ranks\": 99999999999").find("\"ranks\" of transports[1] must be a whole"),
            std::string::npos);
  EXPECT_NE(refusal(good, "\"ranks\": 8", "\"ranks\": 2").find("twice"), std::string::npos);
  for (const char* text : {"", "{", "[]", "1", "NaN", "{\"version\": 1e999}", "\xff"})
    EXPECT_NE(refusal(text), "accepted") << text;
  EXPECT_NE(refusal(good, "\"latency_us\": 20.5", "\"latency_us\": NaN"), "accepted");
  EXPECT_NE(refusal(good, "\"latency_us\": 20.5", "\"latency_us\": 1e999"), "accepted");
  EXPECT_NE(refusal("{\"version\": 1, \"host\": \"\", \"cores\": 1, \"date\": \"\", \"transports\": [3]}")
                .find("transports[0] is not an object"),
            std::string::npos);
}

TEST_F(ClusterFileTest, CostOfTheNearestNumberOfRanks) {
  ClusterFile file = example();
  file.merge({"", 0, "", {{"tcp", 0, {1, 1}, 0, 0, 0}}});
  EXPECT_EQ(file.host, "node-a");
  EXPECT_EQ(file.cost("tcp", 2).ranks, 2);
  EXPECT_EQ(file.cost("tcp", 3).ranks, 2);
  EXPECT_EQ(file.cost("tcp", 5).ranks, 8);
  EXPECT_EQ(file.cost("tcp", 1000).ranks, 8);
  try {
    file.cost("tpc", 2);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean \"tcp\"?"), std::string::npos) << error.what();
  }
}

TEST_F(ClusterFileTest, MergeReplacesTheSameEntry) {
  ClusterFile file = example();
  ClusterFile newer{"node-b", 4, "2026-04-01", {{"tcp", 8, {1, 2}, 3, 4, 5}, {"mpi", 2, {1, 2}, 3, 4, 5}}};
  file.merge(newer);
  EXPECT_EQ(file.transports.size(), 3u);
  EXPECT_EQ(file.cost("tcp", 8), newer.transports[0]);
  EXPECT_EQ(file.host, "node-b");
  EXPECT_EQ(file.date, "2026-04-01");
}

TEST_F(ClusterFileTest, OddHostNamesCanBeSaved) {
  ClusterFile file = example();
  file.host = "a\xff\"b";
  EXPECT_NO_THROW(ClusterFile::from_json(file.to_json(), "x"));
}

TEST_F(ClusterFileTest, DefaultPath) {
  const auto restore = [](const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr ? std::string(value) : std::string();
  };
  const std::string home = restore("HOME"), config = restore("XDG_CONFIG_HOME"), cluster = restore("TRIREME_CLUSTER");
  setenv("HOME", "/home/me", 1);
  unsetenv("XDG_CONFIG_HOME");
  unsetenv("TRIREME_CLUSTER");
  EXPECT_EQ(ClusterFile::default_path(), "/home/me/.config/trireme/cluster.json");
  setenv("XDG_CONFIG_HOME", "relative", 1);
  EXPECT_EQ(ClusterFile::default_path(), "/home/me/.config/trireme/cluster.json");
  setenv("XDG_CONFIG_HOME", "/conf", 1);
  EXPECT_EQ(ClusterFile::default_path(), "/conf/trireme/cluster.json");
  setenv("TRIREME_CLUSTER", "my.json", 1);
  EXPECT_EQ(ClusterFile::default_path(), "my.json");
  unsetenv("TRIREME_CLUSTER");
  unsetenv("XDG_CONFIG_HOME");
  unsetenv("HOME");
  EXPECT_EQ(ClusterFile::default_path(), "");
  if (!home.empty()) setenv("HOME", home.c_str(), 1);
  if (!config.empty()) setenv("XDG_CONFIG_HOME", config.c_str(), 1);
  if (!cluster.empty()) setenv("TRIREME_CLUSTER", cluster.c_str(), 1);
}

}  // namespace
}  // namespace trireme
