#include "trireme/checkpoint/folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/checkpoint/reader.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kTemporary = ".tmp-";

/// Names of real folders in `root` (no links), sorted; none where there is no such folder.
std::vector<std::string> folders_in(const fs::path& root) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(root, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    if (fs::is_directory(at->symlink_status(ignored))) names.push_back(at->path().filename().string());
  }
  if (error && error.value() != ENOENT) throw SystemError("list the folder " + root.string(), error.value());
  std::sort(names.begin(), names.end());
  return names;
}

/// A name for a damaged one that is still free.
fs::path bad_name(const fs::path& folder) {
  std::error_code ignored;
  fs::path name = folder.string() + ".bad";
  for (int number = 2; fs::exists(fs::symlink_status(name, ignored)); ++number) {
    name = fmt::format("{}.bad-{}", folder.string(), number);
  }
  return name;
}

}  // namespace

std::string step_name(uint64_t step) { return fmt::format("{}{:06}", kPrefix, step); }

std::optional<uint64_t> parse_step_name(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  uint64_t step = 0;
  const char* const end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + kPrefix.size(), end, step);
  if (stop != end || error != std::errc{} || step_name(step) != name) return std::nullopt;
  return step;
}

std::vector<CheckpointFolder> list_checkpoints(const fs::path& root) {
  std::vector<CheckpointFolder> found;
  for (const std::string& name : folders_in(root)) {
    if (const auto step = parse_step_name(name)) found.push_back({root / name, *step});
  }
  std::sort(found.begin(), found.end(),
            [](const CheckpointFolder& a, const CheckpointFolder& b) { return a.step > b.step; });
  return found;
}

Finding find_newest(const fs::path& root) {
  Finding finding;
  for (CheckpointFolder& folder : list_checkpoints(root)) {
    std::vector<Damage> damages = verify_checkpoint(folder.path);
    if (damages.empty()) {
      finding.newest = std::move(folder);
      break;
    }
    finding.damaged.push_back({std::move(folder), std::move(damages.front())});
  }
  return finding;
}

std::vector<std::string> set_aside_damaged(const Finding& finding) {
  const std::string instead = finding.newest ? fmt::format("Using {} instead", finding.newest->path.filename().string())
                                             : "There is no good one before it";
  std::vector<std::string> lines;
  for (const Finding::Bad& bad : finding.damaged) {
    const std::string name = bad.folder.path.filename().string();
    std::string fate;
    try {
      const fs::path to = bad_name(bad.folder.path);
      rename_path(bad.folder.path, to);
      fate = "the damaged one is kept as " + to.filename().string();
    } catch (const Error& error) {
      fate = fmt::format("the damaged one stays where it is ({})", error.what());
    }
    const bool changed = bad.damage.problem == "wrong checksum";  // the usual case needs no words
    lines.push_back(fmt::format("checkpoint {} is damaged: {}. {}; {}", name,
                                changed ? bad.damage.place() : bad.damage.text(), instead, fate));
  }
  return lines;
}

int remove_old_checkpoints(const fs::path& root, uint64_t newest_good, int keep) {
  int num_kept = 0, num_removed = 0;
  for (const CheckpointFolder& folder : list_checkpoints(root)) {
    if (folder.step > newest_good) continue;
    if (num_kept < keep || folder.step == newest_good) {
      ++num_kept;
      continue;
    }
    const fs::path away = folder.path.string() + std::string(kTemporary) + "removed";
    remove_tree(away);
    rename_path(folder.path, away);
    remove_tree(away);
    ++num_removed;
  }
  return num_removed;
}

void remove_leftovers(const fs::path& root) {
  for (const std::string& name : folders_in(root)) {
    const size_t at = name.find(kTemporary);
    if (at != std::string::npos && parse_step_name(std::string_view(name).substr(0, at))) remove_tree(root / name);
  }
}

}  // namespace trireme
