// The part of a command line that gives a config: FILE.toml, --model, --nproc, and --section.key=value for any key.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trireme/config/resolve.h"

namespace trireme {

struct ConfigArguments {
  std::string file;
  std::string model;
  int num_processes = 0;           ///< --nproc; 0: as many as the layout needs
  std::vector<std::string> words;  ///< --section.key=value …

  /// Adds the words that remain of a command line after its flags: FILE and --section.key=value, or --section.key
  /// value. Throws UsageError for any other word; `flags`: names to propose instead.
  void take(std::span<const std::string> remaining, std::span<const std::string> flags = {});
  ConfigSources sources(const std::string& default_preset = "default") const;
  /// For plan and simulate. With any --model.KEY, the model starts from the keys' defaults; otherwise it is the one
  /// that train uses.
  ConfigSources sources_of_shape() const;
  /// Workers on this host: --nproc, or the number that the degrees need. With dp = -1: one replica if that is several
  /// workers, otherwise two workers (one on a single core).
  int num_workers(const Config& config) const;
};

/// Turns "dp=2,pp=2" into --parallel.dp=2 --parallel.pp=2; names with a dot ("train.seed=2") are used as they are.
/// Throws UsageError for a name without a value.
std::vector<std::string> words_of_layout(std::string_view layout);

/// Environment variables that workers need so that numbers are equal on any number of workers.
std::vector<std::pair<std::string, std::string>> worker_environment(const Config& config);

}  // namespace trireme
