#include "trireme/config/kept.h"

#include <algorithm>

#include "trireme/config/resolve.h"
#include "trireme/config/toml/toml_text.h"

namespace trireme {
namespace {

struct Younger {
  std::string_view key, before;
};

constexpr Younger kYounger[] = {
    {"data.split", "end"},
};

}  // namespace

std::vector<std::string> words_of_older_version(std::string_view toml, const std::string& name) {
  const std::vector<Assignment> kept = read_toml(toml, name);
  std::vector<std::string> words;
  for (const Younger& younger : kYounger) {
    const auto is_it = [&](const Assignment& assignment) { return assignment.key == younger.key; };
    if (std::none_of(kept.begin(), kept.end(), is_it)) {
      words.push_back("--" + std::string(younger.key) + "=" + std::string(younger.before));
    }
  }
  return words;
}

Config resolve_kept(std::string_view toml, const std::string& name) {
  return resolve_text(toml, name, words_of_older_version(toml, name));
}

}  // namespace trireme
