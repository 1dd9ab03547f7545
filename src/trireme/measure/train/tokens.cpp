#include "trireme/measure/train/tokens.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "trireme/base/file.h"
#include "trireme/base/philox.h"

namespace trireme::measure {
namespace {

constexpr int64_t kNarrowVocab = int64_t{1} << 16;
constexpr int64_t kIdsAtATime = int64_t{1} << 18;

template <typename Id>
void write_ids(File& file, int64_t vocab, int64_t count) {
  const Philox random(1, "trireme bench train");
  std::vector<Id> ids;
  for (int64_t first = 0; first < count; first += kIdsAtATime) {
    ids.resize(static_cast<size_t>(std::min(kIdsAtATime, count - first)));
    for (size_t i = 0; i < ids.size(); ++i) {
      ids[i] = static_cast<Id>(random.below(static_cast<uint64_t>(vocab), static_cast<uint64_t>(first) + i));
    }
    file.write(std::as_bytes(std::span(ids)));
  }
}

}  // namespace

RandomTokenFile::RandomTokenFile(int64_t vocab, int64_t count)
    : path_(std::filesystem::temp_directory_path() / fmt::format("trireme-bench-tokens-{}.bin", getpid())) {
  const bool narrow = vocab <= kNarrowVocab;
  std::array<int32_t, 256> header = {narrow ? 20240520 : 20240801, narrow ? 1 : 7, static_cast<int32_t>(count)};
  remove_tree(path_);  // of a process of the same number that was killed
  File file = File::create(path_);
  try {
    file.write(std::as_bytes(std::span(header)));
    narrow ? write_ids<uint16_t>(file, vocab, count) : write_ids<uint32_t>(file, vocab, count);
  } catch (...) {
    unlink(path_.c_str());
    throw;
  }
}

RandomTokenFile::~RandomTokenFile() { unlink(path_.c_str()); }

}  // namespace trireme::measure
