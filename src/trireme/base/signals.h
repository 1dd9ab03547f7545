// Signals as a flag: for work that ends in good order when somebody asks for it.
#pragma once

#include <signal.h>

#include <utility>
#include <vector>

namespace trireme {

/// While it lives, the signals set a flag instead of ending the process, and system calls that wait return EINTR. With
/// SIGPIPE among them, a write to a process that has ended fails, and received() does not tell of it. One at a time in
/// a process; the destructor puts back what was there.
class HeldSignals {
 public:
  explicit HeldSignals(const std::vector<int>& signals);
  ~HeldSignals();
  HeldSignals(const HeldSignals&) = delete;

  /// The last that came since then; 0: none. Threads: all.
  static int received();

 private:
  std::vector<std::pair<int, struct sigaction>> before_;
};

}  // namespace trireme
