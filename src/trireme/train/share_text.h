// A text that one rank knows and all need: a path, a token, an error.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "trireme/comm/communicator.h"

namespace trireme {

/// The root's text, on all ranks. Collective.
inline std::string share_text(Communicator& comm, std::string text, int root = 0) {
  std::vector<int64_t> length{static_cast<int64_t>(text.size())};
  comm.broadcast(length, root);
  std::vector<uint8_t> bytes(static_cast<size_t>(length[0]));
  if (comm.rank() == root) std::copy(text.begin(), text.end(), bytes.begin());
  if (!bytes.empty()) comm.broadcast(bytes, root);
  return {bytes.begin(), bytes.end()};
}

/// Runs `work` on the root alone and gives all ranks its text; where it throws, all throw the same Error. Collective.
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
  text = share_text(comm, std::move(text), root);
  const bool failed = text[0] == '-';
  text.erase(text.begin());
  if (failed) throw Error(text);
  return text;
}

}  // namespace trireme
