// A job's one JSON object is found in what it prints, and everything else is an error that quotes it.
#include "trireme/measure/programs.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"

namespace trireme::measure {
namespace {

nlohmann::json json_of(const std::string& script) {
  LocalLaunch launch;
  launch.argv = {"sh", "-c", script};
  return run_for_json(launch, "the script");
}

std::string error_of(const std::string& script) {
  try {
    json_of(script);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(RunForJson, FindsTheObject) {
  EXPECT_EQ(json_of("echo '{\"step_ms\": 2.5}'").at("step_ms"), 2.5);
  EXPECT_EQ(json_of("printf '{\\n  \"us\": [1,\\n 2]\\n}\\n'").at("us").size(), 2u);
  EXPECT_EQ(json_of("echo 'a library speaks'; echo '{\"step_ms\": 3}'").at("step_ms"), 3);
}

TEST(RunForJson, RefusesOtherOutput) {
  EXPECT_NE(error_of("echo nothing of use").find("the script printed no JSON object, but: nothing of use"),
            std::string::npos);
  EXPECT_NE(error_of("echo '[1]'").find("printed no JSON object"), std::string::npos);
  EXPECT_NE(error_of("true").find("printed no JSON object"), std::string::npos);
  EXPECT_NE(error_of("echo '{}'; exit 3").find("the script: rank 0"), std::string::npos);
}

TEST(Peers, SayWhatIsMissing) {
  setenv("TRIREME_PYTHON", "/no/such/python", 1);
  EXPECT_NE(peer_problem("peer_gloo.py").find("/no/such/python cannot be run"), std::string::npos);
  setenv("TRIREME_PYTHON", "sh", 1);
  EXPECT_NE(peer_problem("no_such_peer.py").find("there is no no_such_peer.py"), std::string::npos);
  unsetenv("TRIREME_PYTHON");
  EXPECT_NE(peer_problem("peer_gloo.py").find("names no Python with PyTorch"), std::string::npos);
  EXPECT_TRUE(std::filesystem::is_directory(program_folder()));
}

}  // namespace
}  // namespace trireme::measure
