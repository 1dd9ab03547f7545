#include "trireme/compress/processor.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "trireme/compress/formats/arithmetic.h"
#include "trireme/compress/formats/select.h"
#include "trireme/compress/formats/sparse_format.h"

namespace trireme {
namespace {

class HostProcessor : public Processor {
 public:
  Buffer allocate(size_t num_bytes) override {
    const auto memory = std::make_shared<std::vector<uint64_t>>(num_bytes / sizeof(uint64_t) + 1);
    return {std::shared_ptr<void>(memory, memory->data()), num_bytes};
  }
  Buffer allocate_for(Communicator& comm, size_t num_bytes) override { return comm.allocate(num_bytes); }
  std::function<void()> after(void*) override { return {}; }
  void finish() override {}

  void to_host(std::span<const float> from, std::span<float> to) override { copy(from, to); }
  void from_host(std::span<const float> from, std::span<float> to) override { copy(from, to); }
  void copy(std::span<const float> from, std::span<float> to) override {
    std::copy(from.begin(), from.end(), to.begin());
  }
  void clear(std::span<float> values) override { std::fill(values.begin(), values.end(), 0.f); }
  void add_into(std::span<float> into, std::span<const float> from) override { trireme::add_into(into, from); }
  void scale_by(std::span<float> values, float factor) override { trireme::scale_by(values, factor); }
  void weigh(float a, std::span<const float> x, float b, std::span<const float> y, std::span<float> out) override {
    trireme::weigh(a, x, b, y, out);
  }
  double dot_product(std::span<const float> a, std::span<const float> b) override { return trireme::dot_product(a, b); }
  void clamp_to(std::span<float> values, float limit) override { trireme::clamp_to(values, limit); }
  void clear_not_finite(std::span<float> values) override { trireme::clear_not_finite(values); }

  void encode(BlockFormat format, std::span<const float> values, std::span<uint8_t> out, const RandomKey& random,
              uint64_t first) override {
    encode_blocks(format, values, out, random, first);
  }
  void encode_keeping_rest(BlockFormat format, std::span<float> values, std::span<uint8_t> out, const RandomKey& random,
                           uint64_t first) override {
    encode_blocks_keeping_rest(format, values, out, random, first);
  }
  void decode(BlockFormat format, std::span<const uint8_t> in, std::span<float> out, bool add) override {
    add ? add_blocks(format, in, out) : decode_blocks(format, in, out);
  }

  size_t take(std::span<float> from, size_t k, Buffer& out, std::span<float> also) override {
    const std::vector<uint32_t> indices = select_largest(from, k);
    std::vector<float> chosen(indices.size());
    for (size_t i = 0; i < indices.size(); ++i) {
      chosen[i] = from[indices[i]];
      from[indices[i]] = 0;
      if (!also.empty()) also[indices[i]] = 0;
    }
    if (!all_finite(chosen)) {  // the largest are chosen first, so they show it
      clear_not_finite(from);
      clear_not_finite(also);
    }
    const size_t num_bytes = sparse_bytes(from.size(), indices.size());
    if (out.num_bytes() < num_bytes) out = allocate(num_bytes);
    encode_sparse(from.size(), indices, chosen, {static_cast<uint8_t*>(out.data()), num_bytes});
    return num_bytes;
  }
  void add_sparse(std::span<const uint8_t> in, std::span<float> out) override { trireme::add_sparse(in, out); }

  void project(const LowRank& shape, std::span<const float> group, std::span<const float> q,
               std::span<float> p) override {
    trireme::project(shape, group, q, p);
  }
  void make_orthonormal(const LowRank& shape, std::span<float> p) override { trireme::make_orthonormal(shape, p); }
  void project_back(const LowRank& shape, std::span<const float> group, std::span<const float> p,
                    std::span<float> q) override {
    trireme::project_back(shape, group, p, q);
  }
  void expand(const LowRank& shape, std::span<const float> p, std::span<const float> q, bool subtract,
              std::span<float> group) override {
    trireme::expand(shape, p, q, subtract, group);
  }
  std::vector<double> row_squares(const LowRank& shape, std::span<const float> q) override {
    return trireme::row_squares(shape, q);
  }
  void scale_rows(const LowRank& shape, std::span<const float> factors, std::span<float> q) override {
    trireme::scale_rows(shape, factors, q);
  }

  void to_moves(const OneBitAdamSettings& settings, uint64_t warmup_steps, int num_ranks, std::span<float> values,
                std::span<const float> momentum, std::span<const float> second) override {
    trireme::to_moves(settings, warmup_steps, num_ranks, values, momentum, second);
  }
  void to_momentum(const OneBitAdamSettings& settings, uint64_t warmup_steps, std::span<const float> moves,
                   std::span<const float> second, std::span<float> momentum) override {
    trireme::to_momentum(settings, warmup_steps, moves, second, momentum);
  }
  void frozen_adam_step(const OneBitAdamSettings& settings, std::span<const float> moves, std::span<const float> second,
                        std::span<float> weight) override {
    trireme::frozen_adam_step(settings, moves, second, weight);
  }
};

}  // namespace

Processor& host_processor() {
  static HostProcessor processor;
  return processor;
}

}  // namespace trireme
