#include "trireme/compress/formats/sparse_format.h"

#include <fmt/format.h>

#include <cstring>
#include <vector>

#include "trireme/base/error.h"

namespace trireme {
namespace {

constexpr size_t kReach = 65536;  // what 16 bits address

// What to do about bytes that do not fit.
constexpr const char* kCure =
    "give the sender and the receiver the same groups; else the message was damaged on its way";

size_t num_reaches(size_t count) { return (count + kReach - 1) / kReach; }

}  // namespace

size_t sparse_bytes(size_t count, size_t k) { return 4 * num_reaches(count) + 6 * k; }

void encode_sparse(size_t count, std::span<const uint32_t> indices, std::span<const float> values,
                   std::span<uint8_t> out) {
  const size_t k = indices.size(), reaches = num_reaches(count);
  std::vector<uint32_t> counts(reaches);
  std::vector<uint16_t> places(k);
  for (size_t i = 0; i < k; ++i) {
    ++counts[indices[i] / kReach];
    places[i] = static_cast<uint16_t>(indices[i] % kReach);
  }
  if (out.empty()) return;
  std::memcpy(out.data(), counts.data(), 4 * reaches);
  if (k == 0) return;
  std::memcpy(out.data() + 4 * reaches, places.data(), 2 * k);
  std::memcpy(out.data() + 4 * reaches + 2 * k, values.data(), 4 * k);
}

void add_sparse(std::span<const uint8_t> in, std::span<float> out) {
  const size_t reaches = num_reaches(out.size());
  std::vector<uint32_t> counts(reaches);
  if (in.size() < 4 * reaches) {
    throw Error(fmt::format("a sparse message of {} bytes is too short for {} elements", in.size(), out.size()), kCure);
  }
  if (reaches > 0) std::memcpy(counts.data(), in.data(), 4 * reaches);
  size_t k = 0;
  for (const uint32_t n : counts) k += n;
  if (in.size() != sparse_bytes(out.size(), k)) {
    throw Error(fmt::format("a sparse message of {} bytes says that it holds {} of {} elements, which are {} bytes",
                            in.size(), k, out.size(), sparse_bytes(out.size(), k)),
                kCure);
  }
  const uint8_t* const places = in.data() + 4 * reaches;
  const uint8_t* const values = places + 2 * k;
  size_t at = 0;
  for (size_t reach = 0; reach < reaches; ++reach) {
    for (const size_t end = at + counts[reach]; at < end; ++at) {
      uint16_t place;
      float value;
      std::memcpy(&place, places + 2 * at, 2);
      std::memcpy(&value, values + 4 * at, 4);
      const size_t index = reach * kReach + place;
      if (index >= out.size()) {
        throw Error(fmt::format("a sparse message names element {} of {}", index, out.size()), kCure);
      }
      out[index] += value;
    }
  }
}

}  // namespace trireme
