// What a leader answers, refuses and leaves unsaid; the crew is a shell.
#include "trireme/measure/crew.h"

#include <gtest/gtest.h>

namespace trireme::measure {
namespace {

constexpr std::chrono::seconds kPatience{20};

class CrewTest : public testing::Test {
 protected:
  Crew make(const std::string& script, Crew::Variables variables = {}) {
    return Crew("the crew", {{"the leader", {"/bin/sh", "-c", script}, std::move(variables)}}, guardian_);
  }
  template <typename Body>
  static std::string error_of(Body body) {
    try {
      body();
    } catch (const Refused&) {
      return "refused";
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  Guardian guardian_{16};
};

TEST_F(CrewTest, AnswersAndRefuses) {
  Crew crew = make(
      "echo ready to go; while read -r line; do case $line in no*) echo error not that one;; *) echo ok $line 1.5;; "
      "esac; done");
  EXPECT_EQ(crew.wait_until_ready(kPatience), "to go");
  EXPECT_EQ(crew.ask("measure it"), "measure it 1.5");
  EXPECT_EQ(error_of([&] { crew.ask("no way"); }), "refused");
  EXPECT_EQ(crew.ask("again"), "again 1.5") << "a crew that refuses is still there";
}

TEST_F(CrewTest, NamesAndQuotesAProcessThatEnds) {
  Crew crew = make("echo ready; read -r line; echo what went wrong >&2; exit 7");
  EXPECT_EQ(crew.wait_until_ready(kPatience), "");
  const std::string error = error_of([&] { crew.ask("barrier 5"); });
  EXPECT_NE(error.find("the leader (pid "), std::string::npos) << error;
  EXPECT_NE(error.find("ended with exit code 7 during: barrier 5"), std::string::npos) << error;
  EXPECT_NE(error.find("it said:\n    what went wrong"), std::string::npos) << error;
}

TEST_F(CrewTest, SaysWhoNeverGotReady) {
  Crew killed = make("kill -KILL $$");
  EXPECT_NE(error_of([&] { killed.wait_until_ready(kPatience); }).find("was killed by SIGKILL before it was ready"),
            std::string::npos);
  Crew chatty = make("echo hello; sleep 100");
  EXPECT_NE(error_of([&] { chatty.wait_until_ready(kPatience); }).find("the crew stopped answering"),
            std::string::npos);
}

TEST_F(CrewTest, IsAJobOfItsOwn) {
  setenv("TRIREME_RANK", "3", 1);
  setenv("SLURM_PROCID", "3", 1);
  Crew crew = make("echo ready ${TRIREME_RANK-none} ${SLURM_PROCID-none} $TRIREME_WORLD_SIZE; read -r line",
                   {{"TRIREME_WORLD_SIZE", "2"}});
  EXPECT_EQ(crew.wait_until_ready(kPatience), "none none 2");
  unsetenv("TRIREME_RANK");
  unsetenv("SLURM_PROCID");
}

}  // namespace
}  // namespace trireme::measure
