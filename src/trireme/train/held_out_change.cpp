#include "trireme/train/held_out_change.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/config/kept.h"

namespace trireme {

std::string held_out_change(const std::string& meta, const Config& now) {
  Config before;
  try {
    before = resolve_kept(nlohmann::json::parse(meta).at("config").get<std::string>(), "the checkpoint's config");
  } catch (const nlohmann::json::exception&) {
    return "";
  } catch (const UsageError&) {
    return "";
  }
  // Generated data have separate held-out samples, and other files are other data.
  if (now.data.path.empty() || now.data.path != before.data.path || now.data.held_out == 0) return "";
  std::vector<std::string> cures;
  if (now.data.split != before.data.split) cures.push_back(fmt::format("--data.split={}", name_of(before.data.split)));
  if (now.data.held_out != before.data.held_out)
    cures.push_back(fmt::format("--data.held_out={}", before.data.held_out));
  if (now.train.seed != before.train.seed && now.data.split == HoldOut::kRandom)
    cures.push_back(fmt::format("--train.seed={}", before.train.seed));
  if (cures.empty()) return "";
  return fmt::format(
      "other samples are held out than in the run that made the checkpoint: it may have trained on them, and the "
      "held-out loss looks better than it is; to hold out the same: {}",
      join(cures, " "));
}

}  // namespace trireme
