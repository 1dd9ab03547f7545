#include "support/collective_checks.h"

#include <fmt/format.h>

#include <cstring>
#include <numeric>
#include <stdexcept>

#include "trireme/comm/algorithms/algorithms.h"

namespace trireme {
namespace {

uint32_t scramble(uint64_t x) {
  x = (x ^ (x >> 31)) * 0x7fb5d329728ea185ull;
  x = (x ^ (x >> 27)) * 0x81dadef4bc2dd44dull;
  return static_cast<uint32_t>(x >> 33);
}

// A value that makes the order of additions visible.
float value_of(int rank, size_t i, uint64_t salt) {
  const uint32_t bits = scramble(salt * 1000003 + static_cast<uint64_t>(rank) * 7919 + i);
  return (static_cast<float>(bits % 20001) - 10000.f) * (bits & 1 ? 1e-3f : 0.37f);
}

void fill(Data data, int rank, uint64_t salt) {
  for (size_t i = 0; i < data.count; ++i) {
    const float v = value_of(rank, i, salt);
    switch (data.type) {
      case DataType::kFloat:
        reinterpret_cast<float*>(data.bytes)[i] = v;
        break;
      case DataType::kDouble:
        reinterpret_cast<double*>(data.bytes)[i] = v * 1.00001;
        break;
      case DataType::kHalf:
        reinterpret_cast<Half*>(data.bytes)[i] = to_half(v);
        break;
      case DataType::kBFloat16:
        reinterpret_cast<BFloat16*>(data.bytes)[i] = to_bfloat16(v);
        break;
      case DataType::kInt32:
        reinterpret_cast<int32_t*>(data.bytes)[i] = static_cast<int32_t>(v * 1000);
        break;
      case DataType::kInt64:
        reinterpret_cast<int64_t*>(data.bytes)[i] = static_cast<int64_t>(v * 1e6f);
        break;
      case DataType::kUInt8:
        reinterpret_cast<uint8_t*>(data.bytes)[i] = static_cast<uint8_t>(scramble(i + salt));
        break;
    }
  }
}

// Operands with guards around them, from the communicator or not.
class Operand {
 public:
  Operand(Communicator& comm, size_t count, DataType type, bool registered) : count_(count), type_(type) {
    const size_t bytes = count * size_of(type) + 2 * kGuard;
    if (registered) {
      buffer_ = comm.allocate<uint8_t>(bytes);
      base_ = buffer_.data();
    } else {
      own_.resize(bytes);
      base_ = own_.data();
    }
    std::memset(base_, 0xA5, bytes);
  }
  Data data() const { return {base_ + kGuard, count_, type_}; }
  void check_guards(const std::string& what) const {
    const size_t bytes = count_ * size_of(type_);
    for (size_t i = 0; i < kGuard; ++i) {
      if (base_[i] != 0xA5 || base_[kGuard + bytes + i] != 0xA5)
        throw std::runtime_error(what + ": wrote outside its operand");
    }
  }

 private:
  static constexpr size_t kGuard = 64;
  size_t count_;
  DataType type_;
  TypedBuffer<uint8_t> buffer_;
  std::vector<uint8_t> own_;
  uint8_t* base_;
};

void check_equal(const std::string& what, Communicator& comm, ConstData got, ConstData wanted) {
  const size_t width = size_of(got.type);
  for (size_t i = 0; i < wanted.count; ++i) {
    if (std::memcmp(got.bytes + i * width, wanted.bytes + i * width, width) != 0) {
      throw std::runtime_error(fmt::format("{} of {} {} on rank {} of {}: element {} differs", what, wanted.count,
                                           name_of(got.type), comm.rank(), comm.size(), i));
    }
  }
}

// The result by definition: the tree of [Note: Reduction order] over all ranks.
std::vector<std::byte> expected_sum(int ranks, size_t count, DataType type, ReduceOp op, uint64_t salt) {
  const size_t bytes = count * size_of(type);
  std::vector<std::vector<std::byte>> all(static_cast<size_t>(ranks), std::vector<std::byte>(bytes));
  for (int r = 0; r < ranks; ++r) fill({all[static_cast<size_t>(r)].data(), count, type}, r, salt);
  const auto reduce = [&](auto&& self, size_t first, size_t n) -> std::byte* {
    if (n == 1) return all[first].data();
    size_t left = 1;
    while (left * 2 < n) left *= 2;
    std::byte* a = self(self, first, left);
    std::byte* b = self(self, first + left, n - left);
    combine(op, type, a, a, b, count);
    return a;
  };
  reduce(reduce, 0, static_cast<size_t>(ranks));
  finish(op, type, all[0].data(), count, static_cast<size_t>(ranks));
  return all[0];
}

double as_double(ConstData data, size_t i) {
  switch (data.type) {
    case DataType::kFloat:
      return reinterpret_cast<const float*>(data.bytes)[i];
    case DataType::kDouble:
      return reinterpret_cast<const double*>(data.bytes)[i];
    case DataType::kHalf:
      return to_float(reinterpret_cast<const Half*>(data.bytes)[i]);
    case DataType::kBFloat16:
      return to_float(reinterpret_cast<const BFloat16*>(data.bytes)[i]);
    default:
      return 0;
  }
}

// For algorithms with an order of their own.
void check_close(const std::string& what, Communicator& comm, ConstData got, ConstData wanted) {
  const bool exact = got.type == DataType::kInt32 || got.type == DataType::kInt64 || got.type == DataType::kUInt8;
  if (exact) return check_equal(what, comm, got, wanted);
  // Bounded by the sum of the magnitudes that were added.
  const double unit = got.type == DataType::kHalf       ? 1e-3
                      : got.type == DataType::kBFloat16 ? 8e-3
                      : got.type == DataType::kFloat    ? 1.2e-7
                                                        : 2.3e-16;
  const double bound = unit * 5000 * comm.size() * 4;
  for (size_t i = 0; i < wanted.count; ++i) {
    const double difference = std::abs(as_double(got, i) - as_double(wanted, i));
    if (!(difference <= bound)) {
      throw std::runtime_error(fmt::format("{} of {} {} on rank {} of {}: element {} is {} instead of {}", what,
                                           wanted.count, name_of(got.type), comm.rank(), comm.size(), i,
                                           as_double(got, i), as_double(wanted, i)));
    }
  }
}

const std::vector<DataType> kTypes{DataType::kFloat, DataType::kDouble, DataType::kHalf, DataType::kBFloat16,
                                   DataType::kInt32, DataType::kInt64,  DataType::kUInt8};
const std::vector<ReduceOp> kOps{ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin, ReduceOp::kMax,
                                 ReduceOp::kProduct};

// Every (type, operation) at one size, every size with one: all of them at all would be slow and show no more.
template <typename Visit>
void for_each_case(const CheckOptions& options, Visit visit) {
  uint64_t salt = 1;
  for (const size_t count : options.counts) {
    for (const bool registered : {false, true}) visit(count, DataType::kFloat, ReduceOp::kSum, registered, ++salt);
  }
  if (!options.all_types) return;
  for (const DataType type : kTypes) {
    for (const ReduceOp op : kOps) {
      ++salt;
      visit(size_t{301}, type, op, salt % 2 == 0, salt);
    }
  }
}

ConstData view(const std::vector<std::byte>& bytes, size_t count, DataType type) { return {bytes.data(), count, type}; }

}  // namespace

void check_point_to_point(Communicator& comm, const CheckOptions& options) {
  const int p = comm.size(), rank = comm.rank();
  for (const size_t count : options.counts) {
    std::vector<float> out(count), in(count), wanted(count);
    fill(out, rank, count);
    const int next = (rank + 1) % p, previous = (rank + p - 1) % p;
    comm.send_recv(out, next, in, previous, 3);
    fill(wanted, previous, count);
    check_equal("send-recv", comm, in, wanted);
    if (p > 1) {
      // One direction at a time, and two tags that are asked for in the other order.
      if (rank == 0) {
        comm.send(out, 1, 1);
        comm.send(out, 1, 2);
        comm.recv(in, 1, 9);
        fill(wanted, 1, count);
        check_equal("recv", comm, in, wanted);
      } else if (rank == 1) {
        std::vector<float> second(count);
        auto later = comm.start_recv(second, 0, 2);
        comm.recv(in, 0, 1);
        later.wait();
        fill(wanted, 0, count);
        check_equal("recv", comm, in, wanted);
        check_equal("recv of the second tag", comm, second, wanted);
        comm.send(out, 0, 9);
      }
    }
  }
}

void check_collectives(Communicator& comm, const CheckOptions& options) {
  const int p = comm.size(), rank = comm.rank();
  const size_t n = static_cast<size_t>(p);
  for_each_case(options, [&](size_t count, DataType type, ReduceOp op, bool registered, uint64_t salt) {
    const int root = static_cast<int>(salt % n);
    const auto whole = [&](uint64_t s) {  // what all ranks contribute, one after another
      std::vector<std::byte> bytes(n * count * size_of(type));
      for (int r = 0; r < p; ++r)
        fill({bytes.data() + static_cast<size_t>(r) * count * size_of(type), count, type}, r, s);
      return bytes;
    };
    const std::vector<std::byte> all = whole(salt);
    const auto block = [&](int r) {
      return ConstData(all.data() + static_cast<size_t>(r) * count * size_of(type), count, type);
    };
    Operand one(comm, count, type, registered), other(comm, count, type, registered);
    Operand many(comm, n * count, type, registered), more(comm, n * count, type, registered);

    comm.barrier();

    fill(one.data(), rank, salt);
    comm.broadcast(one.data(), root);
    check_equal("broadcast", comm, one.data(), block(root));

    if (rank == root && !all.empty()) std::memcpy(many.data().bytes, all.data(), all.size());
    comm.scatter(many.data(), other.data(), root);
    check_equal("scatter", comm, other.data(), block(rank));

    fill(one.data(), rank, salt);
    comm.gather(one.data(), more.data(), root);
    if (rank == root) check_equal("gather", comm, more.data(), view(all, n * count, type));

    comm.all_gather(one.data(), many.data());
    check_equal("all-gather", comm, many.data(), view(all, n * count, type));

    const std::vector<std::byte> sum = expected_sum(p, count, type, op, salt);
    comm.reduce(one.data(), other.data(), op, root);
    if (rank == root) check_equal(fmt::format("reduce {}", name_of(op)), comm, other.data(), view(sum, count, type));

    // Each rank contributes its own blocks; block r of the sum goes to rank r.
    fill(more.data(), rank, salt + 1);
    const std::vector<std::byte> long_sum = expected_sum(p, n * count, type, op, salt + 1);
    comm.reduce_scatter(more.data(), other.data(), op);
    check_equal(fmt::format("reduce-scatter {}", name_of(op)), comm, other.data(),
                ConstData(long_sum.data() + static_cast<size_t>(rank) * count * size_of(type), count, type));

    comm.all_to_all(more.data(), many.data());
    for (int r = 0; r < p; ++r) {
      std::vector<std::byte> theirs(n * count * size_of(type));
      fill({theirs.data(), n * count, type}, r, salt + 1);
      check_equal("all-to-all", comm, many.data().part(static_cast<size_t>(r) * count, count),
                  ConstData(theirs.data() + static_cast<size_t>(rank) * count * size_of(type), count, type));
    }

    // Unequal sizes: rank r contributes count / (r + 1) + r elements.
    std::vector<size_t> counts;
    for (int r = 0; r < p; ++r) counts.push_back(count / static_cast<size_t>(r + 1) + static_cast<size_t>(r));
    const size_t total = std::accumulate(counts.begin(), counts.end(), size_t{0});
    Operand mine(comm, counts[static_cast<size_t>(rank)], type, registered), gathered(comm, total, type, registered);
    fill(mine.data(), rank, salt + 2);
    comm.all_gather_v(mine.data(), gathered.data(), counts);
    size_t offset = 0;
    for (int r = 0; r < p; ++r) {
      const size_t theirs = counts[static_cast<size_t>(r)];
      std::vector<std::byte> bytes(theirs * size_of(type));
      fill({bytes.data(), theirs, type}, r, salt + 2);
      check_equal("all-gather of unequal sizes", comm, gathered.data().part(offset, theirs), view(bytes, theirs, type));
      offset += theirs;
    }

    // And back: each rank gets its unequal part of the sum, apart from the input and in its place.
    fill(gathered.data(), rank, salt + 4);
    const std::vector<std::byte> unequal_sum = expected_sum(p, total, type, op, salt + 4);
    const size_t own_at = std::accumulate(counts.begin(), counts.begin() + rank, size_t{0}),
                 own_count = counts[static_cast<size_t>(rank)];
    const ConstData own_sum(unequal_sum.data() + own_at * size_of(type), own_count, type);
    comm.reduce_scatter_v(gathered.data(), mine.data(), counts, op);
    check_equal(fmt::format("reduce-scatter {} of unequal sizes", name_of(op)), comm, mine.data(), own_sum);
    comm.start_reduce_scatter_v(gathered.data(), gathered.data().part(own_at, own_count), counts, op).wait();
    check_equal("reduce-scatter in place", comm, gathered.data().part(own_at, own_count), own_sum);
    comm.all_gather_v(gathered.data().part(own_at, own_count), gathered.data(), counts);
    check_equal("all-gather in place", comm, gathered.data(), view(unequal_sum, total, type));

    // Rank a sends (a + 2b) % 5 * count / 4 elements to rank b.
    const auto sent = [&](int a, int b) { return static_cast<size_t>((a + 2 * b) % 5) * count / 4; };
    std::vector<size_t> send_counts, recv_counts;
    for (int r = 0; r < p; ++r) {
      send_counts.push_back(sent(rank, r));
      recv_counts.push_back(sent(r, rank));
    }
    const size_t out_total = std::accumulate(send_counts.begin(), send_counts.end(), size_t{0});
    const size_t in_total = std::accumulate(recv_counts.begin(), recv_counts.end(), size_t{0});
    Operand out(comm, out_total, type, registered), in(comm, in_total, type, registered);
    fill(out.data(), rank, salt + 3);
    comm.all_to_all_v(out.data(), send_counts, in.data(), recv_counts);
    size_t at = 0;
    for (int r = 0; r < p; ++r) {
      size_t theirs_total = 0, theirs_at = 0;
      for (int b = 0; b < p; ++b) {
        if (b == rank) theirs_at = theirs_total;
        theirs_total += sent(r, b);
      }
      std::vector<std::byte> theirs(theirs_total * size_of(type));
      fill({theirs.data(), theirs_total, type}, r, salt + 3);
      const size_t here = recv_counts[static_cast<size_t>(r)];
      check_equal("all-to-all of unequal sizes", comm, in.data().part(at, here),
                  ConstData(theirs.data() + theirs_at * size_of(type), here, type));
      at += here;
    }
    for (const Operand* operand : {&one, &other, &many, &more, &mine, &gathered, &out, &in})
      operand->check_guards("a collective");
  });
}

void check_all_reduce_algorithms(Communicator& comm, const CheckOptions& options) {
  std::vector<Algorithm> algorithms{Algorithm::kAuto};
  algorithms.insert(algorithms.end(), all_algorithms().begin(), all_algorithms().end());
  for (const Algorithm algorithm : algorithms) {
    for_each_case(options, [&](size_t count, DataType type, ReduceOp op, bool registered, uint64_t salt) {
      CallOptions call;
      call.algorithm = algorithm;
      call.ordered = keeps_order(algorithm, comm.size());
      Operand operand(comm, count, type, registered);
      fill(operand.data(), comm.rank(), salt);
      try {
        comm.all_reduce(operand.data(), op, call);
      } catch (const UsageError&) {
        // In place needs one host; two levels need aligned hosts for their bits.
        if (algorithm == Algorithm::kInPlace) return;
        if (algorithm != Algorithm::kTwoLevel) throw;
        call.ordered = false;
        comm.all_reduce(operand.data(), op, call);
      }
      const std::vector<std::byte> wanted = expected_sum(comm.size(), count, type, op, salt);
      const std::string what = fmt::format("all-reduce ({}, {})", name_of(algorithm), name_of(op));
      if (call.ordered) {
        check_equal(what, comm, operand.data(), view(wanted, count, type));
      } else if (op != ReduceOp::kProduct) {
        check_close(what, comm, operand.data(), view(wanted, count, type));
      }
      operand.check_guards(what);
    });
  }
}

void check_mixed_memory(Communicator& comm) {
  // Some ranks bring memory from the communicator, some their own.
  uint64_t salt = 77;
  for (const size_t count : {size_t{100}, size_t{1000}, size_t{5003}, size_t{300007}}) {
    for (const int odd : {0, 1}) {
      Operand operand(comm, count, DataType::kFloat, comm.rank() % 2 == odd);
      fill(operand.data(), comm.rank(), ++salt);
      comm.all_reduce(operand.data());
      const std::vector<std::byte> wanted = expected_sum(comm.size(), count, DataType::kFloat, ReduceOp::kSum, salt);
      check_equal("all-reduce of mixed memory", comm, operand.data(), view(wanted, count, DataType::kFloat));
      operand.check_guards("all-reduce of mixed memory");
    }
  }
}

void check_asynchronous(Communicator& comm) {
  // Several collectives at once, with a blocking one behind them and messages beside them.
  const size_t count = 20000;
  std::vector<std::vector<float>> data(6, std::vector<float>(count));
  std::vector<Handle> handles;
  for (size_t k = 0; k < data.size(); ++k) {
    fill(data[k], comm.rank(), k);
    handles.push_back(comm.start_all_reduce(data[k]));
  }
  const int p = comm.size(), rank = comm.rank();
  std::vector<float> out(count), in(count);
  fill(out, rank, 99);
  auto receiving = comm.start_recv(in, (rank + p - 1) % p, 5);
  auto sending = comm.start_send(out, (rank + 1) % p, 5);
  std::vector<float> last(count);
  fill(last, rank, 50);
  comm.all_reduce(last);
  receiving.wait();
  sending.wait();
  for (Handle& handle : handles) {
    handle.wait();
    if (!handle.test()) throw std::runtime_error("a handle that was waited for says that it is not done");
  }
  for (size_t k = 0; k < data.size(); ++k)
    check_equal("all-reduce in the background", comm, data[k],
                view(expected_sum(p, count, DataType::kFloat, ReduceOp::kSum, k), count, DataType::kFloat));
  check_equal("all-reduce behind others", comm, last,
              view(expected_sum(p, count, DataType::kFloat, ReduceOp::kSum, 50), count, DataType::kFloat));
  std::vector<float> wanted(count);
  fill(wanted, (rank + p - 1) % p, 99);
  check_equal("message in the background", comm, in, wanted);
  comm.barrier();
}

void check_split(Communicator& comm) {
  CheckOptions small;
  small.counts = {1, 1000, 70001};
  small.all_types = false;
  // Halves in reversed order, with their own collectives under way at the same time as the parent's.
  auto half = comm.split(comm.rank() % 2, -comm.rank());
  if (half->world_rank(half->rank()) != comm.world_rank(comm.rank())) throw std::runtime_error("split lost a rank");
  std::vector<float> whole(5000);
  fill(whole, comm.rank(), 7);
  auto handle = comm.start_all_reduce(whole);
  check_collectives(*half, small);
  check_all_reduce_algorithms(*half, small);
  handle.wait();
  check_equal("all-reduce beside a sub-group", comm, whole,
              view(expected_sum(comm.size(), whole.size(), DataType::kFloat, ReduceOp::kSum, 7), whole.size(),
                   DataType::kFloat));
  auto none = comm.split(comm.rank() == 0 ? -1 : 4);
  if ((comm.rank() == 0) != (none == nullptr)) throw std::runtime_error("colour -1 must give no group");
  if (none) none->barrier();
  comm.barrier();
}

void check_everything(World& world, const CheckOptions& options) {
  Communicator& comm = world.comm();
  check_point_to_point(comm, options);
  check_collectives(comm, options);
  check_all_reduce_algorithms(comm, options);
  check_mixed_memory(comm);
  check_asynchronous(comm);
  check_split(comm);
}

}  // namespace trireme
