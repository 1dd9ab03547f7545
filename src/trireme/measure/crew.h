// Processes that stay alive and measure on command: ours, and those of other libraries.
//
//   this process ──"all-reduce 4096 500\n"──▶ leader (rank 0) ──a broadcast of its own──▶ the other ranks
//                ◀──────"ok 1.21 1.19 …\n"───
//
// The leader says "ready …" once, then answers each line with "ok …" or "error …", and ends at the end of its input.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/launch/process.h"

namespace trireme::measure {

/// Ctrl-C or SIGTERM: not an error, but the end.
struct Interrupted {
  int signal;
};

/// Throws Interrupted once HeldSignals has received one; whatever waits for a crew calls it.
void check_interrupted();

/// A crew answered that it cannot do what it was asked for. It is still there.
class Refused : public Error {
 public:
  using Error::Error;
};

/// Owner: the caller. The destructor ends every process of the crew, within seconds, by force if need be; should this
/// process be killed, they die with it. Threads: the one that made it.
class Crew {
 public:
  using Variables = std::vector<std::pair<std::string, std::string>>;
  struct Member {
    std::string name;  ///< "rank 1 of ours"
    std::vector<std::string> argv;
    Variables environment;
    int kept_fd = -1;
  };

  /// Starts them; the first is the leader. Throws SystemError.
  Crew(std::string name, const std::vector<Member>& members, Guardian& guardian);
  ~Crew();
  Crew(const Crew&) = delete;

  const std::string& name() const { return name_; }
  /// What the leader says after "ready". Throws Error when a member ends or the time is up.
  std::string wait_until_ready(std::chrono::seconds time);
  /// What the leader says after "ok". Throws Refused, or Error when a member has ended: it names it and quotes it.
  std::string ask(const std::string& command);

 private:
  struct Process {
    std::string name;
    pid_t pid;
  };

  std::string read_line(std::chrono::seconds time);
  /// Whether somebody has ended; nobody should.
  bool somebody_ended() const;
  [[noreturn]] void fail(const std::string& doing);
  std::string quotation() const;
  void stop(int signal, std::chrono::milliseconds time);

  std::string name_;
  Guardian& guardian_;
  Fd commands_, answers_;
  Fd errors_;  ///< a file in memory, shown only when something goes wrong
  std::vector<Process> running_;
  std::string unread_;
  bool gave_up_ = false;  ///< in the middle of an answer: the crew does not listen
};

}  // namespace trireme::measure
