// What `trireme simulate` says of a simulation: for people, as JSON, as a timeline.
#pragma once

#include <string>
#include <vector>

#include "trireme/simulate/simulate.h"

namespace trireme::cli {

struct SimulateReportOptions {
  double tokens = 0;  ///< of a whole training; 0: not asked
  bool memory = false;
  std::string note = {};  ///< a sentence to end with; empty: none
};

/// A row of a table: the fraction of the pipeline's time that is waited, and what it is of.
std::vector<std::string> idle_row(const Simulation& simulation);
/// "how sure: …": how well predictions for the cluster have fared.
std::string how_sure(const Cluster& cluster);
std::string simulation_text(const Simulation& simulation, const SimulateReportOptions& options);
std::string simulation_json(const Simulation& simulation, const SimulateReportOptions& options);

std::string simulation_svg(const Simulation& simulation);
/// For chrome://tracing and Perfetto: a process a rank, a thread a stream.
std::string simulation_trace(const Simulation& simulation);

}  // namespace trireme::cli
