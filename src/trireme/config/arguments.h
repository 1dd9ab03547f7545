// The part of a command line that says a config: FILE.toml, --model, --nproc, and --section.key=value for any key.
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
  int num_processes = 0;           ///< 0: as the layout demands
  std::vector<std::string> words;  ///< --section.key=value …

  /// Adds what is left of a command line without its flags: FILE and --section.key=value, or --section.key value.
  /// Throws UsageError for another word; `flags` are the names that it proposes instead.
  void take(std::span<const std::string> remaining, std::span<const std::string> flags = {});
  ConfigSources sources(const std::string& default_preset = "default") const;
  /// For plan and simulate. A model that is given key by key starts from the keys' defaults; where nothing is said of
  /// the model it is the one that train takes.
  ConfigSources sources_of_shape() const;
  /// Workers on this host: --nproc, or the product of the degrees, or two where dp is the rest (one on one core).
  int num_workers(const Config& config) const;
};

/// "dp=2,pp=2" as --parallel.dp=2 --parallel.pp=2; longer names ("train.seed=2") are keys of their own.
std::vector<std::string> words_of_layout(std::string_view layout);

/// What a worker's environment must have for equal numbers on any number of workers.
std::vector<std::pair<std::string, std::string>> worker_environment(const Config& config);

}  // namespace trireme
