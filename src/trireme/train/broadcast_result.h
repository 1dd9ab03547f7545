// Broadcasts something that one rank finds out and all need, such as a path or a token, and errors, so that only one
// rank reports them.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <string>
#include <vector>

#include "trireme/base/json.h"
#include "trireme/parallel/data/same_on_all_ranks.h"

namespace trireme {

/// An error that another rank reports, so this rank need not.
class RelayedError : public Error {
 public:
  explicit RelayedError(const Error& told, bool is_usage = false)
      : Error(told.what(), {}, told.where()), is_usage_(is_usage) {}
  bool is_usage() const { return is_usage_; }  ///< the other rank's error is a UsageError

 private:
  bool is_usage_;
};

/// For an error that all ranks have found: rank 0 throws it, the others throw a RelayedError with its message.
template <typename Thrown>
[[noreturn]] void throw_once(const Communicator& comm, const Thrown& error) {
  if (comm.rank() > 0) throw RelayedError(error);
  throw error;
}

/// Runs `work` on every rank. If it throws on any rank, all throw: the lowest such rank its own exception, the others a
/// RelayedError with that message. Collective, but `work` must not be.
template <typename Work>
void run_on_all(Communicator& comm, Work work) {
  constexpr int32_t kFine = 1 << 30;
  std::exception_ptr met;
  std::string words;
  int32_t told = kFine;  // 2 · rank, plus 1 unless it is a UsageError
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

/// Runs `work` on the root alone and returns its text on all ranks. If it throws, all throw: the root an Error with its
/// message, the others a RelayedError. Collective.
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
