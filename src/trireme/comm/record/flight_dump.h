// Writes the flight recorders of a rank to a file when somebody asks for it from outside.
#pragma once

#include <memory>
#include <thread>

#include "trireme/comm/rank_context.h"

namespace trireme {

/// With TRIREME_FLIGHT_DIR set, SIGUSR2 makes every rank of the process write FLIGHT_DIR/flight-rankN.json: also while
/// it is stuck, since a thread of its own does the writing. Without the variable nothing is installed.
class FlightDump {
 public:
  static std::unique_ptr<FlightDump> start_if_wanted(std::shared_ptr<RankContext> context);
  ~FlightDump();

 private:
  FlightDump(std::shared_ptr<RankContext> context, std::string folder);
  void run();

  std::shared_ptr<RankContext> context_;
  std::string folder_;
  int pipe_[2] = {-1, -1};
  std::thread thread_;
};

}  // namespace trireme
