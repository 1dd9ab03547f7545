// From the command line of `trireme simulate` to what it plays: the keys of `train`, and what it alone knows.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/cli/config_arguments.h"
#include "trireme/simulate/simulate.h"

namespace trireme::cli {

constexpr const char* kUsualCluster = "h100-80gb";

struct SimulateFlags {
  ConfigArguments config;
  std::optional<std::string> cluster;  ///< where one was named
  std::string attention = "auto";      ///< auto, flash, unfused
  std::string svg, trace;
  std::vector<std::string> runs;             ///< folders of runs to compare with
  std::optional<std::string> write_cluster;  ///< a file; empty: the one that every command reads
  int64_t gpus = 0;                          ///< 0: the product of the degrees
  int64_t experts = 1, active_experts = 1;
  double tokens = 0;
  bool json = false, memory = false;
};

/// Short names become those of the config ("gpt", "fp16"), and schedules that only the simulator plays are taken out.
/// `schedule` is left alone where none is named.
std::vector<std::string> translate_words(std::vector<std::string> words, std::string& schedule);

struct Played {
  Simulation simulation;
  std::string note;  ///< what the trainer would not do of it; empty: nothing
};

/// The keys, or the plan that they name, on the cluster that is named: the plan's own where none is. Throws UsageError
/// that names the key.
Played play(const Config& config, const SimulateFlags& flags, const std::string& schedule);

}  // namespace trireme::cli
