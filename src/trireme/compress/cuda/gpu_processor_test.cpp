// What a GPU codes, keeps, chooses and adds has the host's bytes, over all formats, odd sizes and values that are none.
#include "trireme/compress/cuda/gpu_processor.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "trireme/compress/formats/sparse_format.h"
#include "trireme/gpu/gpu_test_util.h"

namespace trireme {
namespace {

constexpr size_t kSizes[] = {1, 5, 511, 512, 513, 1027, 70001, 300000};

/// A block of zeros, tiny and huge ones, one with a NaN, one with an infinity among normal ones.
std::vector<float> some_values(size_t count, uint32_t seed, bool all_finite = false) {
  std::vector<float> values = gpu::random_values(static_cast<int64_t>(count), gpu::Type::kFloat, seed, 0.02f);
  for (size_t i = 0; i < count; ++i) {
    const size_t block = i / 512 % 11;
    if (block == 3) values[i] = 0;
    if (block == 5) values[i] *= 1e-33f;
    if (block == 6) values[i] *= 1e35f;
    if (i % 97 == 13) values[i] = values[i / 2];  // equal magnitudes
  }
  if (!all_finite && count > 4200) {
    values[4100] = std::numeric_limits<float>::quiet_NaN();
    values[count - 3] = -std::numeric_limits<float>::infinity();
  }
  return values;
}

std::vector<uint32_t> bits_of(std::span<const float> values) {
  std::vector<uint32_t> bits;
  for (const float value : values) {
    bits.push_back(std::isnan(value) ? 0x7fc00000u : std::bit_cast<uint32_t>(value));  // payloads are not defined
  }
  return bits;
}

class GpuProcessorTest : public gpu::GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped()) gpu_ = make_gpu_processor(0);
  }
  /// The same values in the GPU's memory.
  Array<float> on_gpu(std::span<const float> values) {
    Array<float> array(*gpu_, values.size());
    gpu_->from_host(values, array.span());
    return array;
  }
  std::vector<float> on_host(const Array<float>& array) {
    std::vector<float> values(array.size());
    gpu_->to_host(array.span(), values);
    return values;
  }
  std::vector<uint8_t> bytes_of(const void* memory, size_t count) {
    std::vector<uint8_t> bytes(count);
    gpu_->finish();
    gpu::check(cudaMemcpy(bytes.data(), memory, count, cudaMemcpyDeviceToHost), "cudaMemcpy");
    return bytes;
  }

  Processor& host_ = host_processor();
  std::unique_ptr<Processor> gpu_;
};

TEST_F(GpuProcessorTest, PacksBlocksAsTheHostDoes) {
  const RandomKey random = random_key(7, "test", 3);
  for (size_t f = 0; f < kNumBlockFormats; ++f) {
    const auto format = static_cast<BlockFormat>(f);
    for (const size_t count : kSizes) {
      SCOPED_TRACE(std::string(name_of(format)) + ", " + std::to_string(count));
      for (const bool keeps_rest : {false, true}) {
        std::vector<float> values = some_values(count, static_cast<uint32_t>(f));
        const Array<float> there = on_gpu(values);
        const size_t num_bytes = encoded_bytes(format, count);
        std::vector<uint8_t> wire(num_bytes);
        const Array<uint8_t> wire_there(*gpu_, num_bytes);
        if (keeps_rest) {
          host_.encode_keeping_rest(format, values, wire, random, 1024);
          gpu_->encode_keeping_rest(format, there.span(), wire_there.span(), random, 1024);
        } else {
          host_.encode(format, values, wire, random, 1024);
          gpu_->encode(format, there.span(), wire_there.span(), random, 1024);
        }
        const std::vector<uint8_t> found = bytes_of(wire_there.span().data(), num_bytes);
        const size_t scales = has_scale(format) ? 4 * ((count + 511) / 512) : 0;
        ASSERT_TRUE(std::equal(wire.begin() + static_cast<std::ptrdiff_t>(scales), wire.end(),
                               found.begin() + static_cast<std::ptrdiff_t>(scales)));
        ASSERT_EQ(bits_of(on_host(there)), bits_of(values));
        for (const bool adds : {false, true}) {
          std::vector<float> out(count, 0.25f);
          const Array<float> out_there = on_gpu(out);
          host_.decode(format, wire, out, adds);
          gpu_->decode(format, wire_there.span(), out_there.span(), adds);
          ASSERT_EQ(bits_of(on_host(out_there)), bits_of(out));
        }
      }
    }
  }
}

TEST_F(GpuProcessorTest, ChoosesAsTheHostDoes) {
  for (const size_t count : kSizes) {
    const size_t few = std::max<size_t>(1, count / 100);
    for (const size_t k : {size_t{1}, few, count / 2 + 1, count}) {
      for (const bool finite : {true, false}) {
        SCOPED_TRACE(fmt::format("{} of {}, {}", k, count, finite));
        std::vector<float> values = some_values(count, 5, finite), also = some_values(count, 6, finite);
        const Array<float> there = on_gpu(values), also_there = on_gpu(also);
        Buffer message, message_there;
        const size_t num_bytes = host_.take(values, k, message, also);
        ASSERT_EQ(gpu_->take(there.span(), k, message_there, also_there.span()), num_bytes);
        const auto* const bytes = static_cast<const uint8_t*>(message.data());
        ASSERT_EQ(bytes_of(message_there.data(), num_bytes), std::vector<uint8_t>(bytes, bytes + num_bytes));
        ASSERT_EQ(bits_of(on_host(there)), bits_of(values));
        ASSERT_EQ(bits_of(on_host(also_there)), bits_of(also));
        std::vector<float> out(count, 0.5f);
        const Array<float> out_there = on_gpu(out);
        host_.add_sparse({bytes, num_bytes}, out);
        gpu_->add_sparse({static_cast<const uint8_t*>(message_there.data()), num_bytes}, out_there.span());
        ASSERT_EQ(bits_of(on_host(out_there)), bits_of(out));
      }
    }
  }
}

TEST_F(GpuProcessorTest, ZerosAndEqualOnesAreChosenFromTheFront) {
  std::vector<float> values(9000, 0.f);
  const Array<float> there = on_gpu(values);
  Buffer message, message_there;
  const size_t num_bytes = host_.take(values, 4500, message);
  ASSERT_EQ(gpu_->take(there.span(), 4500, message_there), num_bytes);
  const auto* const bytes = static_cast<const uint8_t*>(message.data());
  EXPECT_EQ(bytes_of(message_there.data(), num_bytes), std::vector<uint8_t>(bytes, bytes + num_bytes));
}

TEST_F(GpuProcessorTest, Arithmetic) {
  const std::vector<float> a = gpu::random_values(70001, gpu::Type::kFloat, 1);
  std::vector<float> b = gpu::random_values(70001, gpu::Type::kFloat, 2);
  const Array<float> a_there = on_gpu(a), b_there = on_gpu(b);
  EXPECT_EQ(gpu_->dot_product(a_there.span(), b_there.span()), host_.dot_product(a, b));
  EXPECT_EQ(gpu_->dot_product(a_there.span().first(7), b_there.span().first(7)),
            host_.dot_product(std::span(a).first(7), std::span(b).first(7)));
  EXPECT_EQ(gpu_->dot_product({}, {}), 0);
  gpu_->weigh(0.3f, a_there.span(), -1.7f, b_there.span(), b_there.span());
  host_.weigh(0.3f, a, -1.7f, b, b);
  EXPECT_EQ(bits_of(on_host(b_there)), bits_of(b));
  gpu_->clamp_to(b_there.span(), 0.9f);
  host_.clamp_to(b, 0.9f);
  EXPECT_EQ(bits_of(on_host(b_there)), bits_of(b));
  gpu_->add_into(b_there.span(), a_there.span());
  gpu_->scale_by(b_there.span(), 0.3f);
  host_.add_into(b, a);
  host_.scale_by(b, 0.3f);
  EXPECT_EQ(bits_of(on_host(b_there)), bits_of(b));
  gpu_->clear(b_there.span());
  EXPECT_EQ(on_host(b_there), std::vector<float>(b.size()));
}

TEST_F(GpuProcessorTest, WhatIsNotFiniteIsCleared) {
  std::vector<float> values = some_values(70001, 4);
  const Array<float> there = on_gpu(values);
  gpu_->clear_not_finite(there.span());
  host_.clear_not_finite(values);
  EXPECT_EQ(bits_of(on_host(there)), bits_of(values));
}

TEST_F(GpuProcessorTest, ThinProductsAreTheHosts) {
  for (const size_t rank : {1, 2, 3, 4, 7, 8, 9, 32, 37}) {
    SCOPED_TRACE(fmt::format("rank {}", rank));
    LowRank shape{.rank = rank};
    size_t count = 0;
    // More matrices than a kernel is told of at once; long ones, wide ones, and none that fills its tiles.
    for (const auto& [rows, columns] : {std::pair<size_t, size_t>{5000, 70}, {70, 5000}, {257, 300}, {2, 131}}) {
      shape.add(count, rows, columns);
      count += rows * columns + 3;
    }
    for (size_t i = 0; i < 130; ++i, count += 35) shape.add(count, 5 + i % 3, 5);
    std::vector<float> group = gpu::random_values(static_cast<int64_t>(count), gpu::Type::kFloat, 1);
    std::vector<float> q = gpu::random_values(static_cast<int64_t>(shape.num_q), gpu::Type::kFloat, 2);
    std::vector<float> p(shape.num_p);
    for (size_t k = 1; k < rank; k += 2) {  // columns that depend on others, and a NaN in a matrix of its own
      const LowRank::Matrix& m = shape.matrices[2];
      std::copy_n(q.begin() + static_cast<ptrdiff_t>(m.q), m.columns,
                  q.begin() + static_cast<ptrdiff_t>(m.q + k * m.columns));
    }
    group[shape.matrices[3].offset + 40] = std::numeric_limits<float>::quiet_NaN();
    const Array<float> group_there = on_gpu(group), q_there = on_gpu(q), p_there(*gpu_, p.size());
    host_.project(shape, group, q, p);
    gpu_->project(shape, group_there.span(), q_there.span(), p_there.span());
    ASSERT_EQ(bits_of(on_host(p_there)), bits_of(p)) << "M Q";
    host_.make_orthonormal(shape, p);
    gpu_->make_orthonormal(shape, p_there.span());
    ASSERT_EQ(bits_of(on_host(p_there)), bits_of(p)) << "orthonormal";
    host_.project_back(shape, group, p, q);
    gpu_->project_back(shape, group_there.span(), p_there.span(), q_there.span());
    ASSERT_EQ(bits_of(on_host(q_there)), bits_of(q)) << "Mᵀ P";
    for (const bool subtract : {true, false}) {
      host_.expand(shape, p, q, subtract, group);
      gpu_->expand(shape, p_there.span(), q_there.span(), subtract, group_there.span());
      ASSERT_EQ(bits_of(on_host(group_there)), bits_of(group)) << "P Qᵀ";
    }
    const std::vector<double> squares = host_.row_squares(shape, q), found = gpu_->row_squares(shape, q_there.span());
    ASSERT_EQ(found.size(), squares.size());
    std::vector<float> factors;
    for (size_t i = 0; i < squares.size(); ++i) {
      ASSERT_TRUE(found[i] == squares[i] || (std::isnan(found[i]) && std::isnan(squares[i]))) << i;
      factors.push_back(0.1f + static_cast<float>(i % 11));
    }
    host_.scale_rows(shape, factors, q);
    gpu_->scale_rows(shape, factors, q_there.span());
    ASSERT_EQ(bits_of(on_host(q_there)), bits_of(q)) << "rows";
  }
}

TEST_F(GpuProcessorTest, StepsOfOneBitAdamAreTheHosts) {
  constexpr int64_t kCount = 70001;
  const OneBitAdamSettings settings{.lr = 3e-3f, .beta1 = 0.87f, .beta2 = 0.98f, .eps = 1e-7f, .weight_decay = 0.1f};
  std::vector<float> moves = gpu::random_values(kCount, gpu::Type::kFloat, 1, 0.02f);
  std::vector<float> momentum = gpu::random_values(kCount, gpu::Type::kFloat, 2, 0.02f);
  std::vector<float> second = gpu::random_values(kCount, gpu::Type::kFloat, 3, 1e-3f);
  std::vector<float> weight = gpu::random_values(kCount, gpu::Type::kFloat, 4);
  for (size_t i = 0; i < second.size(); ++i) second[i] = i % 17 == 3 ? 0 : std::abs(second[i]);
  const Array<float> moves_there = on_gpu(moves), momentum_there = on_gpu(momentum), second_there = on_gpu(second),
                     weight_there = on_gpu(weight);
  host_.to_moves(settings, 20, 3, moves, momentum, second);
  gpu_->to_moves(settings, 20, 3, moves_there.span(), momentum_there.span(), second_there.span());
  EXPECT_EQ(bits_of(on_host(moves_there)), bits_of(moves));
  host_.to_momentum(settings, 20, moves, second, momentum);
  gpu_->to_momentum(settings, 20, moves_there.span(), second_there.span(), momentum_there.span());
  EXPECT_EQ(bits_of(on_host(momentum_there)), bits_of(momentum));
  host_.frozen_adam_step(settings, moves, second, weight);
  gpu_->frozen_adam_step(settings, moves_there.span(), second_there.span(), weight_there.span());
  EXPECT_EQ(bits_of(on_host(weight_there)), bits_of(weight));
}

TEST_F(GpuProcessorTest, AMessageThatDoesNotFitIsRefused) {
  const Array<float> out(*gpu_, 1000);
  const Array<uint8_t> message(*gpu_, 11);
  EXPECT_THROW(gpu_->add_sparse(message.span(), out.span()), Error);
  EXPECT_THROW(gpu_->add_sparse(message.span().first(3), out.span()), Error);
}

}  // namespace
}  // namespace trireme
