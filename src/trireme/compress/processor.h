// Who works on the arrays of a compressed sum, in whose memory they lie: the host, or a GPU (compress/cuda).
//
// Owner: whoever makes exchanges; it outlives them. Threads: one at a time. Calls follow one another, but a GPU may
// still be at work when they return: finish() waits for it. Both give the same bits.
#pragma once

#include <functional>
#include <span>

#include "trireme/comm/communicator.h"
#include "trireme/compress/formats/block_format.h"
#include "trireme/compress/formats/low_rank.h"
#include "trireme/compress/formats/select.h"
#include "trireme/compress/one_bit_adam.h"

namespace trireme {

class Processor {
 public:
  virtual ~Processor() = default;

  virtual Place place() const { return Place::kHost; }
  /// Of operations on its arrays.
  virtual CallOptions call_options() const { return {}; }
  /// Zeroed memory for itself.
  virtual Buffer allocate(size_t num_bytes) = 0;
  /// Zeroed memory that the communicator's members reach.
  virtual Buffer allocate_for(Communicator& comm, size_t num_bytes) = 0;
  /// What its work must wait for, where arrays are written on this stream: call the result on the thread that works.
  virtual std::function<void()> after(void* stream) = 0;
  /// Returns when all that was asked for is done.
  virtual void finish() = 0;

  virtual void to_host(std::span<const float> from, std::span<float> to) = 0;
  virtual void from_host(std::span<const float> from, std::span<float> to) = 0;
  virtual void copy(std::span<const float> from, std::span<float> to) = 0;
  virtual void clear(std::span<float> values) = 0;
  // As in arithmetic.h.
  virtual void add_into(std::span<float> into, std::span<const float> from) = 0;
  virtual void scale_by(std::span<float> values, float factor) = 0;
  virtual void weigh(float a, std::span<const float> x, float b, std::span<const float> y, std::span<float> out) = 0;
  virtual double dot_product(std::span<const float> a, std::span<const float> b) = 0;
  virtual void clamp_to(std::span<float> values, float limit) = 0;
  virtual void clear_not_finite(std::span<float> values) = 0;

  // As in block_format.h, whose sizes the caller has checked.
  virtual void encode(BlockFormat format, std::span<const float> values, std::span<uint8_t> out,
                      const RandomKey& random, uint64_t first) = 0;
  virtual void encode_keeping_rest(BlockFormat format, std::span<float> values, std::span<uint8_t> out,
                                   const RandomKey& random, uint64_t first) = 0;
  virtual void decode(BlockFormat format, std::span<const uint8_t> in, std::span<float> out, bool add) = 0;

  /// Takes the k largest elements out of `from`, as one message ([Note: Sparse format]) in `out`, which grows where it
  /// must; returns its length. Where one of them is not finite, everything that is not finite becomes 0. The same
  /// elements of `also`, unless it is empty, become 0, too.
  virtual size_t take(std::span<float> from, size_t k, Buffer& out, std::span<float> also = {}) = 0;
  /// out += what such a message holds.
  virtual void add_sparse(std::span<const uint8_t> in, std::span<float> out) = 0;

  // As in low_rank.h.
  virtual void project(const LowRank& shape, std::span<const float> group, std::span<const float> q,
                       std::span<float> p) = 0;
  virtual void make_orthonormal(const LowRank& shape, std::span<float> p) = 0;
  virtual void project_back(const LowRank& shape, std::span<const float> group, std::span<const float> p,
                            std::span<float> q) = 0;
  virtual void expand(const LowRank& shape, std::span<const float> p, std::span<const float> q, bool subtract,
                      std::span<float> group) = 0;
  virtual std::vector<double> row_squares(const LowRank& shape, std::span<const float> q) = 0;
  virtual void scale_rows(const LowRank& shape, std::span<const float> factors, std::span<float> q) = 0;

  // As in one_bit_adam.h.
  virtual void to_moves(const OneBitAdamSettings& settings, uint64_t warmup_steps, int num_ranks,
                        std::span<float> values, std::span<const float> momentum, std::span<const float> second) = 0;
  virtual void to_momentum(const OneBitAdamSettings& settings, uint64_t warmup_steps, std::span<const float> moves,
                           std::span<const float> second, std::span<float> momentum) = 0;
  virtual void frozen_adam_step(const OneBitAdamSettings& settings, std::span<const float> moves,
                                std::span<const float> second, std::span<float> weight) = 0;

  template <typename T>
  Data data_of(std::span<T> array) const {
    return {array.data(), array.size(), DataTypeOf<T>::value, place()};
  }
};

/// There is one, for all threads.
Processor& host_processor();

/// An array in a processor's memory.
template <typename T>
class Array {
 public:
  Array(Processor& processor, size_t count) : memory_(processor.allocate(count * sizeof(T))), count_(count) {}
  Array(Buffer memory, size_t count) : memory_(std::move(memory)), count_(count) {}
  bool empty() const { return count_ == 0; }
  size_t size() const { return count_; }
  std::span<T> span() const { return {static_cast<T*>(memory_.data()), count_}; }

 private:
  Buffer memory_;
  size_t count_;
};

}  // namespace trireme
