#include "trireme/parallel/data/same_on_all_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "trireme/base/text.h"

namespace trireme {
namespace {

constexpr int64_t kNoDifference = std::numeric_limits<int64_t>::max();

int64_t first_difference(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  const auto [at, other] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return at == a.end() && other == b.end() ? kNoDifference : at - a.begin();
}

std::string line_or_end(const std::vector<std::string>& lines, int64_t at) {
  return at < static_cast<int64_t>(lines.size()) ? lines[static_cast<size_t>(at)] : "nothing more";
}

}  // namespace

std::string broadcast_text(Communicator& comm, std::string text, int root) {
  std::vector<int64_t> length{static_cast<int64_t>(text.size())};
  comm.broadcast(length, root);
  text.resize(static_cast<size_t>(length[0]));
  if (!text.empty()) comm.broadcast({text.data(), text.size(), DataType::kUInt8}, root);
  return text;
}

void check_same_on_all_ranks(Communicator& comm, const std::string& what, const std::vector<std::string>& lines,
                             const std::string& cure) {
  std::string joined;
  for (const std::string& line : lines) joined += line + '\n';
  const std::string text_of_root = broadcast_text(comm, joined, 0);
  const std::vector<std::string_view> parts = split(text_of_root, '\n');
  std::vector<std::string> of_root(parts.begin(), parts.end());
  if (!of_root.empty()) of_root.pop_back();  // the empty text after the last newline

  const std::vector<int64_t> own{first_difference(of_root, lines)};
  std::vector<int64_t> of_rank(static_cast<size_t>(comm.size()));
  comm.all_gather(own, of_rank);
  const auto earliest = std::min_element(of_rank.begin(), of_rank.end());
  if (*earliest == kNoDifference) return;

  const int rank = static_cast<int>(earliest - of_rank.begin());
  const std::string differs = broadcast_text(comm, line_or_end(lines, *earliest), rank);
  throw UsageError(fmt::format("the {} of rank {} differs from rank 0's: it has {}, rank 0 has {}", what, rank, differs,
                               line_or_end(of_root, *earliest)),
                   cure);
}

}  // namespace trireme
