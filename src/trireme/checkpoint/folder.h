// The folder that holds the checkpoints of a run: their names, which one counts, and which may go.
//
//   ROOT/step-000600                a committed checkpoint
//   ROOT/step-000700.tmp-TOKEN      a save under way, or the leftover of a dead one
//   ROOT/step-000500.bad            found damaged, kept for whoever wants to know why
//   ROOT/.lock                      held by the process that saves; its leftover means nothing
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/checkpoint/damage.h"

namespace trireme {

struct CheckpointFolder {
  std::filesystem::path path;
  uint64_t step = 0;
};

/// "step-000600"
std::string step_name(uint64_t step);
/// The step of a committed checkpoint's name; nothing for any other name.
std::optional<uint64_t> parse_step_name(std::string_view name);

/// Committed checkpoints, newest first; nothing is read but names. None where the folder does not exist.
std::vector<CheckpointFolder> list_checkpoints(const std::filesystem::path& root);

struct Finding {
  struct Bad {
    CheckpointFolder folder;
    Damage damage;  ///< the first
  };
  std::optional<CheckpointFolder> newest;  ///< verified, every byte of it
  std::vector<Bad> damaged;                ///< newer than that
};

/// Looks for the newest checkpoint that is whole, and changes nothing. Reads all of its bytes.
/// One process decides and tells the others the path: what is whole for one could be damaged for the next.
/// Throws SystemError where something cannot be read for other reasons than damage, and Error for one that a newer
/// version made: going on from an older one must be somebody's decision.
Finding find_newest(const std::filesystem::path& root);

/// Renames the damaged ones to step-N.bad, so that nobody takes them again, and says so, a line each. Where that cannot
/// be done (a read-only folder) the line says why.
std::vector<std::string> set_aside_damaged(const Finding& finding);

/// Removes committed checkpoints of steps below that of `newest_good`, but for the newest `keep` - 1 of them; later
/// steps are left alone. Each is renamed first, so that none is ever there in part. Returns how many have gone.
int remove_old_checkpoints(const std::filesystem::path& root, uint64_t newest_good, int keep);
/// Removes what dead saves have left. Only for who holds the lock of the folder.
void remove_leftovers(const std::filesystem::path& root);

}  // namespace trireme
