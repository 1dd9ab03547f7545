#include "trireme/comm/record/flight_dump.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <fstream>

#include "trireme/base/log.h"
#include "trireme/comm/record/flight_recorder.h"

namespace trireme {
namespace {

std::atomic<int> signalled_fd{-1};

void on_signal(int) {
  const int saved = errno;
  const int fd = signalled_fd.load();
  if (fd >= 0) [[maybe_unused]]
    const ssize_t n = write(fd, "d", 1);
  errno = saved;
}

}  // namespace

std::unique_ptr<FlightDump> FlightDump::start_if_wanted(std::shared_ptr<RankContext> context) {
  const char* folder = std::getenv("TRIREME_FLIGHT_DIR");
  if (folder == nullptr || *folder == '\0') return nullptr;
  return std::unique_ptr<FlightDump>(new FlightDump(std::move(context), folder));
}

FlightDump::FlightDump(std::shared_ptr<RankContext> context, std::string folder)
    : context_(std::move(context)), folder_(std::move(folder)) {
  if (pipe2(pipe_, O_CLOEXEC) != 0) return;
  signalled_fd.store(pipe_[1]);
  std::signal(SIGUSR2, on_signal);
  thread_ = std::thread([this] { run(); });
}

FlightDump::~FlightDump() {
  if (!thread_.joinable()) return;
  std::signal(SIGUSR2, SIG_IGN);
  signalled_fd.store(-1);
  [[maybe_unused]] const ssize_t n = write(pipe_[1], "q", 1);
  thread_.join();
  close(pipe_[0]);
  close(pipe_[1]);
}

void FlightDump::run() {
  char command = 0;
  while (read(pipe_[0], &command, 1) == 1 && command == 'd') {
    try {
      std::ofstream file(fmt::format("{}/flight-rank{}.json", folder_, context_->rank));
      file << "{\"rank\":" << context_->rank << ",\"groups\":{";
      std::lock_guard lock(context_->recorders_mutex);
      bool first = true;
      for (const auto& [name, recorder] : context_->recorders) {
        file << (first ? "" : ",") << '"' << name << "\":" << recorder->to_json();
        first = false;
      }
      file << "}}\n";
    } catch (const std::exception& error) {
      log_warn("cannot write the flight recorder: {}", error.what());
    }
  }
}

}  // namespace trireme
