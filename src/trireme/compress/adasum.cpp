#include "trireme/compress/adasum.h"

#include <fmt/format.h>

#include <bit>
#include <vector>

#include "trireme/base/error.h"

namespace trireme {

void adasum_pair(const GroupLayout& layout, std::span<float> a, std::span<const float> b, Processor& processor) {
  for (const TensorPart& part : layout.parts) {
    const std::span<float> x = a.subspan(part.offset, part.count());
    const std::span<const float> y = b.subspan(part.offset, part.count());
    const double xy = processor.dot_product(x, y), xx = processor.dot_product(x, x), yy = processor.dot_product(y, y);
    const auto of_x = static_cast<float>(xx == 0 ? 1 : 1 - xy / (2 * xx));
    const auto of_y = static_cast<float>(yy == 0 ? 1 : 1 - xy / (2 * yy));
    processor.weigh(of_x, x, of_y, y, x);
  }
}

size_t adasum(Communicator& comm, const GroupLayout& layout, std::span<float> values) {
  std::vector<float> scratch(values.size());
  return adasum(comm, layout, values, scratch, host_processor());
}

size_t adasum(Communicator& comm, const GroupLayout& unchecked, std::span<float> values, std::span<float> scratch,
              Processor& processor) {
  const GroupLayout layout = checked(unchecked);
  if (values.size() != layout.count || scratch.size() < layout.count) {
    throw UsageError(
        fmt::format("group {} has {} elements, but was laid out with {}", layout.name, values.size(), layout.count));
  }
  const int rank = comm.rank(), size = comm.size();
  const Data own = processor.data_of(values);
  const CallOptions options = processor.call_options();
  const int paired = static_cast<int>(std::bit_floor(static_cast<unsigned>(size)));
  if (rank >= paired) {
    comm.send(own, rank - paired, 0, options);
    comm.recv(own, rank - paired, 0, options);
    return values.size_bytes();
  }
  const std::span<float> other = scratch.first(values.size());
  size_t bytes_sent = 0;
  const bool has_guest = rank + paired < size;
  if (has_guest) {
    comm.recv(processor.data_of(other), rank + paired, 0, options);
    adasum_pair(layout, values, other, processor);
  }
  for (int distance = 1; distance < paired; distance *= 2) {
    const int partner = rank ^ distance;
    comm.send_recv(own, partner, processor.data_of(other), partner, 0, options);
    bytes_sent += values.size_bytes();
    if (rank < partner) {
      adasum_pair(layout, values, other, processor);
    } else {  // the same order on both sides: the same bits
      adasum_pair(layout, other, values, processor);
      processor.copy(other, values);
    }
  }
  if (has_guest) {
    comm.send(own, rank + paired, 0, options);
    bytes_sent += values.size_bytes();
  }
  processor.finish();
  return bytes_sent;
}

}  // namespace trireme
