// The flags that train, bench train, verify, plan and simulate share, and the words of a config that CLI11 leaves.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "trireme/config/arguments.h"

namespace trireme::cli {

inline void add_config_flags(CLI::App& command, ConfigArguments& arguments) {
  command.add_option("--model", arguments.model, "a preset; trireme train --presets lists them")->type_name("NAME");
  command.add_option("--nproc", arguments.num_processes, "workers on this machine (default: as parallel.* demands)")
      ->type_name("N")
      ->check(CLI::Range(1, 4096));
  command.allow_extras();
}

/// Throws UsageError for a word that is no part of a config.
inline void take_config_words(const CLI::App& command, ConfigArguments& arguments) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : command.get_options()) flags.push_back(option->get_name());
  arguments.take(command.remaining(), flags);
}

}  // namespace trireme::cli
