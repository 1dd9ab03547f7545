#include "trireme/base/signals.h"

#include <atomic>

namespace trireme {
namespace {

std::atomic<int> g_received_signal{0};

}  // namespace

HeldSignals::HeldSignals(const std::vector<int>& signals) {
  g_received_signal = 0;
  struct sigaction action {};
  action.sa_handler = [](int signal) {
    if (signal != SIGPIPE) g_received_signal = signal;
  };
  for (const int signal : signals) {
    before_.emplace_back().first = signal;
    sigaction(signal, &action, &before_.back().second);
  }
}

HeldSignals::~HeldSignals() {
  for (const auto& [signal, action] : before_) sigaction(signal, &action, nullptr);
}

int HeldSignals::received() { return g_received_signal; }

}  // namespace trireme
