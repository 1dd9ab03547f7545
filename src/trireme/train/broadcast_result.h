// Broadcasts what one rank finds out and all need: a path, a token, or an error, which one rank reports.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <string>
#include <vector>

#include "trireme/base/json.h"
#include "trireme/parallel/data/same_on_all_ranks.h"

namespace trireme {

/// An error that another rank reports, so this one need not.
class RelayedError : public Error {
 public:
  explicit RelayedError(const Error& told, bool is_usage = false)
      : Error(told.what(), {}, told.where()), is_usage_(is_usage) {}
  bool is_usage() const { return is_usage_; }  ///< what the other has is a UsageError

 private:
  bool is_usage_;
};

/// What all ranks have found: the first throws `error`, the others a RelayedError of its words.
template <typename Thrown>
[[noreturn]] void throw_once(const Communicator& comm, const Thrown& error) {
  if (comm.rank() > 0) throw RelayedError(error);
  throw error;
}

/// Runs `work` on every rank. Where it throws on any, all throw: the first of those ranks what it met, the others a
/// RelayedError of its words. Collective, which `work` must not be.
template <typename Work>
void run_on_all(Communicator& comm, Work work) {
  constexpr int32_t kFine = 1 << 30;
  std::exception_ptr met;
  std::string words;
  int32_t told = kFine;  // 2 · rank, and 1 more where it is no UsageError
  try {
    work();
  } catch (const std::exception& error) {
    met = std::current_exception();
    words = failure_to_text(error);
    told = 2 * comm.rank() + (dynamic_cast<const UsageError*>(&error) ? 0 : 1);
  }
  std::vector<int32_t> first{told};
  if (comm.size() > 1) comm.all_reduce(first, ReduceOp::kMin);
  if (first[0] == kFine) return;
  if (comm.size() > 1) words = broadcast_text(comm, std::move(words), first[0] / 2);
  if (first[0] == told) std::rethrow_exception(met);
  throw RelayedError(failure_from_text(words), first[0] % 2 == 0);
}

/// Runs `work` on the root alone and gives all ranks its text; where it throws, all throw an Error with
/// its words, a RelayedError on the others. Collective.
template <typename Work>
std::string broadcast_result(Communicator& comm, Work work, int root = 0) {
  std::string text;
  if (comm.rank() == root) {
    try {
      text = fmt::format("+{}", work());
    } catch (const std::exception& error) {
      text = fmt::format("-{}", failure_to_text(error));
    }
  }
  text = broadcast_text(comm, std::move(text), root);
  const bool failed = text[0] == '-';
  text.erase(text.begin());
  if (failed && comm.rank() != root) throw RelayedError(failure_from_text(text));
  if (failed) throw failure_from_text(text);
  return text;
}

}  // namespace trireme
