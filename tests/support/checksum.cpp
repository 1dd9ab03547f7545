#include "support/checksum.h"

#include <fmt/format.h>

#include <stdexcept>

#include "trireme/comm/reduce/reduce.h"

namespace trireme {
namespace {

/// Values of very different sizes and signs: a sum of them depends on the order.
float value_of(uint64_t rank, uint64_t i) {
  uint64_t x = (rank << 40) + i + 1;
  x = (x ^ (x >> 31)) * 0x7fb5d329728ea185ull;
  x = (x ^ (x >> 27)) * 0x81dadef4bc2dd44dull;
  x ^= x >> 33;
  const auto mantissa = static_cast<float>(x % 2'000'001) / 1e6f - 1.f;
  return mantissa * static_cast<float>(uint64_t{1} << (x >> 60));
}

void fill(Data data, int rank) {
  for (size_t i = 0; i < data.count; ++i) {
    const float value = value_of(static_cast<uint64_t>(rank), i);
    switch (data.type) {
      case DataType::kFloat:
        reinterpret_cast<float*>(data.bytes)[i] = value;
        break;
      case DataType::kDouble:
        reinterpret_cast<double*>(data.bytes)[i] = value / 3.0;
        break;
      case DataType::kHalf:
        reinterpret_cast<Half*>(data.bytes)[i] = to_half(value / 1000);
        break;
      case DataType::kBFloat16:
        reinterpret_cast<BFloat16*>(data.bytes)[i] = to_bfloat16(value);
        break;
      default:
        throw std::logic_error("integers add in any order");
    }
  }
}

uint64_t hash(uint64_t h, ConstData data) {
  for (size_t i = 0; i < data.num_bytes(); ++i) h = (h ^ static_cast<uint64_t>(data.bytes[i])) * 0x100000001b3ull;
  return h;
}

}  // namespace

uint64_t checksum_of_all_reduces(Communicator& comm) {
  uint64_t checksum = 0xcbf29ce484222325ull;
  // From what fits into a cache line to what is cut into blocks and chunks.
  for (const size_t count : {1, 1000, 70'001, 300'007}) {
    for (const DataType type : {DataType::kFloat, DataType::kDouble, DataType::kHalf, DataType::kBFloat16}) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage}) {
        std::vector<std::byte> bytes(count * size_of(type));
        const Data data(bytes.data(), count, type);
        fill(data, comm.rank());
        comm.all_reduce(data, op);
        checksum = hash(checksum, data);
      }
    }
  }
  std::vector<int64_t> all(static_cast<size_t>(comm.size()));
  comm.all_gather(ConstData(&checksum, 1, DataType::kInt64), all);
  for (size_t r = 0; r < all.size(); ++r) {
    if (all[r] != all[0]) throw std::runtime_error(fmt::format("ranks 0 and {} have different results", r));
  }
  return checksum;
}

}  // namespace trireme
