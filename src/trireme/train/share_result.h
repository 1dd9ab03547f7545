// What one rank finds out and all need: a path, a token, or that there is an error, which one of them tells.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/parallel/data/same_on_all_ranks.h"

namespace trireme {

/// An error that another rank tells: this one ends without a word.
class SharedError : public Error {
 public:
  explicit SharedError(const std::string& cause, bool is_usage = false) : Error(cause), is_usage_(is_usage) {}
  bool is_usage() const { return is_usage_; }  ///< what the other has is a UsageError

 private:
  bool is_usage_;
};

/// What all ranks have found: the first throws `error`, the others a SharedError of its words.
template <typename Thrown>
[[noreturn]] void throw_once(const Communicator& comm, const Thrown& error) {
  if (comm.rank() > 0) throw SharedError(error.what());
  throw error;
}

/// Runs `work` on every rank. Where it throws on any, all throw: the first of those ranks what it met, the others a
/// SharedError. Collective, which `work` must not be.
template <typename Work>
void run_on_all(Communicator& comm, Work work) {
  constexpr int32_t kFine = 1 << 30;
  std::exception_ptr met;
  int32_t told = kFine;  // 2 · rank, and 1 more where it is no UsageError
  try {
    work();
  } catch (const std::exception& error) {
    met = std::current_exception();
    told = 2 * comm.rank() + (dynamic_cast<const UsageError*>(&error) ? 0 : 1);
  }
  std::vector<int32_t> first{told};
  if (comm.size() > 1) comm.all_reduce(first, ReduceOp::kMin);
  if (first[0] == kFine) return;
  if (first[0] == told) std::rethrow_exception(met);
  throw SharedError(fmt::format("rank {} could not", first[0] / 2), first[0] % 2 == 0);
}

/// Runs `work` on the root alone and gives all ranks its text; where it throws, all throw an Error with
/// its words, a SharedError on the others. Collective.
template <typename Work>
std::string share_result(Communicator& comm, Work work, int root = 0) {
  std::string text;
  if (comm.rank() == root) {
    try {
      text = fmt::format("+{}", work());
    } catch (const std::exception& error) {
      text = fmt::format("-{}", error.what());
    }
  }
  text = broadcast_text(comm, std::move(text), root);
  const bool failed = text[0] == '-';
  text.erase(text.begin());
  if (failed && comm.rank() != root) throw SharedError(text);
  if (failed) throw Error(text);
  return text;
}

}  // namespace trireme
