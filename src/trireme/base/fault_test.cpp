// Which passages a rule matches, what each kind does, and which rules are refused.
#include "trireme/base/fault.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>

#include "trireme/base/error.h"

namespace trireme {
namespace {

class Fault : public testing::Test {
 protected:
  void SetUp() override {
    set_fault_rank(0);
    set_fault_step(0);
  }
  void TearDown() override { set_faults(""); }
};

std::string refusal(std::string_view text) {
  try {
    set_faults(text);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

/// What waitpid says of a child that runs `body`.
int status_of(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, WUNTRACED);
  if (WIFSTOPPED(status)) {
    int end = 0;
    kill(child, SIGKILL);
    waitpid(child, &end, 0);
  }
  return status;
}

TEST_F(Fault, NothingByDefault) {
  EXPECT_FALSE(faults_armed());
  EXPECT_NO_THROW(fault_point("comm.before_reduce"));
  EXPECT_EQ(fault_errno("comm.before_send"), 0);
}

TEST_F(Fault, RankStepAndPointMustMatch) {
  set_faults("rank=2, step=17, point=a.b, kind=throw");
  set_fault_rank(2);
  set_fault_step(17);
  EXPECT_NO_THROW(fault_point("a.c"));
  EXPECT_THROW(fault_point("a.b"), Error);
  EXPECT_THROW(fault_point("a.b"), Error);
  set_fault_step(18);
  EXPECT_NO_THROW(fault_point("a.b"));
  set_fault_step(17);
  set_fault_rank(1);
  EXPECT_NO_THROW(fault_point("a.b"));
}

TEST_F(Fault, CountActsOnceAmongMatchingPassages) {
  set_faults("rank=0,point=a,kind=throw,count=3;");
  fault_point("a");
  set_fault_rank(1);
  for (int i = 0; i < 5; ++i) fault_point("a");
  set_fault_rank(0);
  fault_point("a");
  EXPECT_THROW(fault_point("a"), Error);
  EXPECT_NO_THROW(fault_point("a"));
}

TEST_F(Fault, RankBelongsToTheThread) {
  set_faults("rank=1,point=a,kind=errno:EIO");
  std::thread([] {
    set_fault_rank(1);
    EXPECT_EQ(fault_errno("a"), EIO);
  }).join();
  EXPECT_EQ(fault_errno("a"), 0);
  std::thread([] { EXPECT_EQ(fault_errno("a"), EIO) << "a helper thread sees the last rank set"; }).join();
}

TEST_F(Fault, Errno) {
  set_faults("point=write,kind=errno:ENOSPC,count=2;point=send,kind=errno:ECONNRESET");
  EXPECT_EQ(fault_errno("write"), 0);
  EXPECT_EQ(fault_errno("write"), ENOSPC);
  EXPECT_EQ(fault_errno("write"), 0);
  EXPECT_EQ(fault_errno("send"), ECONNRESET);
  try {
    fault_point("send");
    FAIL();
  } catch (const SystemError& error) {
    EXPECT_EQ(error.error_number(), ECONNRESET);
  }
}

TEST_F(Fault, Delay) {
  set_faults("point=a,kind=delay:20");
  const auto start = std::chrono::steady_clock::now();
  fault_point("a");
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(20));
}

TEST_F(Fault, KillAndStop) {
  const int killed = status_of([] {
    set_faults("point=a,kind=kill");
    fault_point("a");
  });
  EXPECT_TRUE(WIFSIGNALED(killed) && WTERMSIG(killed) == SIGKILL);
  const int stopped = status_of([] {
    set_faults("point=a,kind=stop");
    fault_point("a");
  });
  EXPECT_TRUE(WIFSTOPPED(stopped) && WSTOPSIG(stopped) == SIGSTOP);
}

TEST(FaultDeathTest, RulesFromEnvironment) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a new process, where the variable has not been read yet
  setenv("TRIREME_FAULT", "rank=3,point=a,kind=kill", 1);
  EXPECT_EXIT(
      {
        set_fault_rank(2);
        fault_point("a");
        set_fault_rank(3);
        fault_point("a");
      },
      testing::KilledBySignal(SIGKILL), "");
  setenv("TRIREME_FAULT", "nonsense", 1);
  EXPECT_EXIT(
      {
        EXPECT_THROW(fault_point("a"), UsageError);
        EXPECT_THROW(set_fault_rank(2), UsageError);
        std::_Exit(testing::Test::HasFailure() ? 1 : 0);
      },
      testing::ExitedWithCode(0), "");
  unsetenv("TRIREME_FAULT");
}

TEST_F(Fault, BadRulesAreRefusedAndTheOldStay) {
  set_faults("point=a,kind=errno:EIO");
  EXPECT_NE(refusal("pint=a,kind=kill").find("unknown key \"pint\"; did you mean point?"), std::string::npos);
  EXPECT_NE(refusal("point=a").find("kind is missing"), std::string::npos);
  EXPECT_NE(refusal("kind=kill").find("point is missing"), std::string::npos);
  EXPECT_NE(refusal("point=a,kind=explode").find("unknown kind \"explode\""), std::string::npos);
  EXPECT_NE(refusal("point=a,kind=errno:ENOPE").find("\"ENOPE\" is not an errno"), std::string::npos);
  EXPECT_NE(refusal("point=a,kind=kill,rank=x").find("rank = \"x\" is not a number"), std::string::npos);
  for (const char* text : {"point", "point=a,kind=kill,rank=-1", "point=a,kind=kill:3", "point=a,kind=delay",
                           "point=a,kind=delay:", "point=a,kind=kill,count=0", "point=a,point=b,kind=kill", "a;b"}) {
    EXPECT_NE(refusal(text), "accepted") << text;
  }
  EXPECT_EQ(fault_errno("a"), EIO);
}

}  // namespace
}  // namespace trireme
