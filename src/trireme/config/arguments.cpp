#include "trireme/config/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/config/check.h"
#include "trireme/config/stages.h"

namespace trireme {

void ConfigArguments::take(std::span<const std::string> remaining, std::span<const std::string> flags) {
  for (size_t i = 0; i < remaining.size(); ++i) {
    const std::string& word = remaining[i];
    if (word.starts_with("-")) {
      const std::string name = word.substr(0, word.find('='));
      if (name.find('.') == std::string::npos) {
        const std::optional<std::string> meant = nearest(name, flags);
        throw UsageError(fmt::format("unknown flag {}", name), meant ? fmt::format("did you mean {}?", *meant)
                                                                     : "--help lists flags, docs/config.md all keys");
      }
      words.push_back(word);
      const bool has_value = name.size() < word.size();
      if (!has_value && i + 1 < remaining.size() && !remaining[i + 1].starts_with("--"))
        words.push_back(remaining[++i]);
    } else if (!word.ends_with(".toml")) {
      // The shell expands an unquoted pattern to many words.
      const bool has_data = std::any_of(words.begin(), words.end(),
                                        [](const std::string& each) { return each.starts_with("--data.path"); });
      throw UsageError(fmt::format("{} is no config: its name does not end in .toml", word),
                       has_data ? "several files of data: --data.path with the pattern in quotes ('data/*.txt'), names "
                                  "with commas between, or their folder"
                                : fmt::format("to train on it: trireme train --data.path {}", word));
    } else if (file.empty()) {
      file = word;
    } else {
      throw UsageError(fmt::format("two configs: {} and {}", file, word),
                       "give one file, and --section.key=value for the rest");
    }
  }
}

ConfigSources ConfigArguments::sources(const std::string& default_preset) const {
  ConfigSources sources;
  sources.file = file;
  if (!model.empty()) sources.arguments = {"--model", model};
  sources.arguments.insert(sources.arguments.end(), words.begin(), words.end());
  sources.default_preset = default_preset;
  return sources;
}

ConfigSources ConfigArguments::sources_of_shape() const {
  const bool says_model =
      std::any_of(words.begin(), words.end(), [](const std::string& word) { return word.starts_with("--model."); });
  return says_model ? sources("") : sources();
}

int ConfigArguments::num_workers(const Config& config) const {
  if (num_processes > 0) return num_processes;
  const ParallelConfig& p = config.parallel;
  const int64_t others = workers_of_replica(config);
  if (!p.stages.empty()) return static_cast<int>(trireme::num_workers(stage_degrees(config)));
  if (p.dp > 0) return static_cast<int>(p.dp * others);
  // One replica, if it has several workers, is enough for one machine by default.
  const auto cores = static_cast<int64_t>(std::max(1u, std::thread::hardware_concurrency()));
  return static_cast<int>(others > 1 ? others : std::min<int64_t>(2, cores));
}

std::vector<std::string> words_of_layout(std::string_view layout) {
  std::vector<std::string> words;
  for (const std::string_view part : split(layout, ',')) {
    const size_t equals = part.find('=');
    if (equals == std::string_view::npos) {
      throw UsageError(fmt::format("layout \"{}\": \"{}\" has no value", layout, part), "write it like dp=2,pp=2");
    }
    const bool whole_key = part.substr(0, equals).find('.') != std::string_view::npos;
    words.push_back(fmt::format("--{}{}", whole_key ? "" : "parallel.", part));
  }
  return words;
}

std::vector<std::pair<std::string, std::string>> worker_environment(const Config& config) {
  return {{"OMP_NUM_THREADS", fmt::format("{}", config.train.threads)}};
}

}  // namespace trireme
