// What one rank finds out and all need: a path, a token, or the error that it met.
#pragma once

#include <fmt/format.h>

#include <string>

#include "trireme/base/error.h"
#include "trireme/parallel/data/same_on_all_ranks.h"

namespace trireme {

/// An error that the root tells; other ranks end without a word.
class SharedError : public Error {
 public:
  using Error::Error;
};

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
