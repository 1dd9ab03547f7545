#include "trireme/config/reference.h"

#include <fmt/format.h>

#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/config/key.h"
#include "trireme/config/presets.h"
#include "trireme/config/resolve.h"
#include "trireme/config/value.h"

namespace trireme {
namespace {

constexpr std::string_view kIntroduction = R"(# Configuration

`trireme train [FILE.toml] [--section.key=value …]` reads its configuration in layers, each over the one before:

1. the defaults below,
2. a preset, named by `model.preset` or `--model NAME`; without a file and without a name, `default`,
3. the file,
4. the command line: `--train.steps=100` or `--train.steps 100`; a switch alone is true.

`trireme train --show-config` prints every value and where it came from, as a file that can be read back.
An unknown key is an error that names the nearest one; so is a value that is out of range. What this version
cannot do yet is accepted in a file and refused before the first step.

```toml
[model]
preset = "gpt2-124m"

[data]
path = "corpus.txt"

[train]
steps = 2000
global_batch = 64     # samples of a step, over all workers
micro_batch = 4       # samples that a worker computes at a time
```

**How a batch is split.** `train.global_batch` is `train.micro_batch` × micro-batches a replica × `dp`. Sums over
micro-batches follow a fixed order: they are cut into `train.leaves` runs of equal length, and the sums of the runs meet
in a binary tree. So `dp` must divide the leaves, the leaves must divide the number of micro-batches, and with the same
leaves and micro-batch every such `dp` gives the same bits.

This page is made from the table in `src/trireme/config/keys.cpp`: `trireme train --config-reference > docs/config.md`.
)";

/// Escapes the text of a table cell.
std::string cell(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '|') result += '\\';
    result += c;
  }
  return result;
}

std::string allowed(const Key& key) {
  if (!key.allowed.names.empty()) {
    std::string names = "`" + join(key.allowed.names, "`, `") + "`";
    std::vector<std::string_view> aliases;
    for (const auto& [alias, name] : key.allowed.aliases) aliases.push_back(alias);
    if (!aliases.empty()) names += " (also `" + join(aliases, "`, `") + "`)";
    return key.allowed.file.empty() ? names : fmt::format("{}, or {}", names, key.allowed.file);
  }
  const std::string_view type = key.type_name();
  if (type == "switch") return "`true`, `false`";
  if (type == "text") return "any";
  // The range of "a whole number from 1 to 8"; the type has its own column.
  const std::string expected = key.expected();
  const std::string range = expected.substr(expected.find(" from ") + 6);
  return key.allowed.unit.empty() ? range : fmt::format("{} {}", range, key.allowed.unit);
}

}  // namespace

std::string config_reference_markdown() {
  std::string page(kIntroduction);
  const Config defaults;
  for (const Section& section : sections()) {
    page += fmt::format("\n## [{}]\n\n{}\n\n", section.name, section.meaning);
    page += "| key | type | default | meaning | allowed |\n| --- | --- | --- | --- | --- |\n";
    for (const Key& key : keys()) {
      if (key.section != section.name) continue;
      page += fmt::format("| `{}` | {} | `{}` | {} | {} |\n", key.name, key.type_name(),
                          format_value(get_value(defaults, key)), cell(key.meaning), cell(allowed(key)));
    }
  }
  page +=
      "\n## Presets\n\nA preset may set any key; `trireme train --model NAME --show-config` prints what it sets.\n\n";
  page += "| preset | what it is | parameters |\n| --- | --- | ---: |\n";
  for (const Preset& preset : list_presets()) {
    ConfigSources sources;
    sources.default_preset = preset.name;
    page += fmt::format("| `{}` | {} | {} |\n", preset.name, cell(preset.description),
                        format_count(count_parameters(resolve(sources).model)));
  }
  return page;
}

}  // namespace trireme
