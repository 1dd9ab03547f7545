#include "trireme/config/kept.h"

#include <algorithm>

#include "trireme/config/resolve.h"
#include "trireme/config/toml/toml_text.h"
#include "trireme/config/value.h"

namespace trireme {
namespace {

struct Younger {
  std::string_view key, before;
};

constexpr Younger kYounger[] = {
    {"data.split", "end"},
};

}  // namespace

void add_younger_keys(Config& config, std::string_view toml, const std::string& name) {
  const std::vector<Assignment> kept = read_toml(toml, name);
  for (const Younger& younger : kYounger) {
    const auto is_it = [&](const Assignment& assignment) { return assignment.key == younger.key; };
    if (std::any_of(kept.begin(), kept.end(), is_it) || !config.origins.is_default(younger.key)) continue;
    set_key(config, younger.key, std::string(younger.before), "command line");
  }
}

Config resolve_kept(std::string_view toml, const std::string& name) {
  Config config = resolve_text(toml, name);
  add_younger_keys(config, toml, name);
  return config;
}

}  // namespace trireme
