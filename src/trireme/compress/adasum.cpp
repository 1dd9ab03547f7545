#include "trireme/compress/adasum.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/compress/arithmetic.h"

namespace trireme {

void adasum_pair(const GroupLayout& layout, std::span<float> a, std::span<const float> b) {
  for (const TensorPart& part : layout.parts) {
    const std::span<float> x = a.subspan(part.offset, part.count());
    const std::span<const float> y = b.subspan(part.offset, part.count());
    const double xy = dot_product(x, y), xx = dot_product(x, x), yy = dot_product(y, y);
    const auto of_x = static_cast<float>(xx == 0 ? 1 : 1 - xy / (2 * xx));
    const auto of_y = static_cast<float>(yy == 0 ? 1 : 1 - xy / (2 * yy));
    for (size_t i = 0; i < x.size(); ++i) x[i] = of_x * x[i] + of_y * y[i];
  }
}

size_t adasum(Communicator& comm, const GroupLayout& unchecked, std::span<float> values) {
  const GroupLayout layout = checked(unchecked);
  if (values.size() != layout.count) {
    throw UsageError(
        fmt::format("group {} has {} elements, but was laid out with {}", layout.name, values.size(), layout.count));
  }
  const int rank = comm.rank(), size = comm.size();
  const int paired = static_cast<int>(std::bit_floor(static_cast<unsigned>(size)));
  if (rank >= paired) {
    comm.send(values, rank - paired);
    comm.recv(values, rank - paired);
    return values.size_bytes();
  }
  std::vector<float> other(values.size());
  size_t bytes_sent = 0;
  const bool has_guest = rank + paired < size;
  if (has_guest) {
    comm.recv(other, rank + paired);
    adasum_pair(layout, values, other);
  }
  for (int distance = 1; distance < paired; distance *= 2) {
    const int partner = rank ^ distance;
    comm.send_recv(values, partner, other, partner);
    bytes_sent += values.size_bytes();
    if (rank < partner) {
      adasum_pair(layout, values, other);
    } else {  // the same order on both sides: the same bits
      adasum_pair(layout, other, values);
      std::copy(other.begin(), other.end(), values.begin());
    }
  }
  if (has_guest) {
    comm.send(values, rank + paired);
    bytes_sent += values.size_bytes();
  }
  return bytes_sent;
}

}  // namespace trireme
