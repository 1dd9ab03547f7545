// The loss and the embeddings on the GPU against references in double precision, and the same bits from a graph.
#include "trireme/gpu/kernels/tokens.h"

#include <algorithm>
#include <functional>
#include <string>

#include "trireme/gpu/gpu_test_util.h"

namespace trireme::gpu {
namespace {

constexpr Type kTokenTypes[] = {Type::kFloat, Type::kHalf, Type::kBFloat16};

std::vector<int64_t> random_tokens(int64_t count, int64_t vocab, uint32_t seed) {
  std::mt19937 generator(seed);
  std::vector<int64_t> tokens(static_cast<size_t>(count));
  for (int64_t& token : tokens) token = static_cast<int64_t>(generator() % static_cast<uint64_t>(vocab));
  return tokens;
}

class TokensTest : public GpuTest {
 protected:
  /// Rows as they are, ignored, and (once) with a target that no class has.
  void run_cross_entropy(int64_t rows, int64_t classes, int64_t stride, Type type, size_t shift, bool gradient) {
    SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(classes) + " of " + std::to_string(stride) + " " +
                 name_of(type) + " shift " + std::to_string(shift) + (gradient ? " with gradient" : ""));
    const float scale = 0.25f;
    const auto logits = random_values(rows * stride, type, 11, 3);
    auto targets = random_tokens(rows, classes, 12);
    if (rows > 2) targets[1] = -100, targets[2] = classes;
    std::vector<double> losses, expected(logits.begin(), logits.end());
    for (size_t i = 0; i < targets.size(); ++i) {
      const auto begin = i * static_cast<size_t>(stride), end = begin + static_cast<size_t>(classes);
      const bool counts = targets[i] >= 0 && targets[i] < classes;
      const double otherwise = targets[i] == -100 ? 0 : NAN;
      double greatest = -HUGE_VAL, sum = 0;
      for (size_t j = begin; j < end; ++j) greatest = std::max<double>(greatest, logits[j]);
      for (size_t j = begin; j < end; ++j) sum += std::exp(logits[j] - greatest);
      const size_t target = begin + static_cast<size_t>(counts ? targets[i] : 0);
      losses.push_back(counts ? std::log(sum) + greatest - logits[target] : otherwise);
      for (size_t j = begin; gradient && j < end; ++j) {
        expected[j] = counts ? scale * (std::exp(logits[j] - greatest) / sum - (j == target)) : otherwise;
      }
    }
    const DeviceMemory data = to_device(logits, type, shift * size_of(type)), wanted = to_device(targets),
                       loss(targets.size() * 4);
    cross_entropy({rows, classes, stride, type}, data.get(), wanted.get<int64_t>(), scale, gradient, loss.get<float>(),
                  stream_);
    wait();
    expect_close(to_host<float>(loss), losses, 2e-6, 5e-6, "losses");
    const double relative = type == Type::kFloat ? 4e-6 : 1.02 * rounding_of(type);
    expect_close(to_host(data, type), expected, relative, type == Type::kHalf ? 6e-8 : 1e-7, "gradient");
  }

  /// Sums of random gradients, with errors measured by the sizes of what is summed.
  void run_embedding_backward(const EmbeddingShape& shape, const std::vector<int64_t>& tokens, bool with_positions,
                              size_t shift = 0) {
    SCOPED_TRACE(std::to_string(shape.rows) + " x " + std::to_string(shape.width) + " of " +
                 std::to_string(shape.vocab) + " " + name_of(shape.type) + " shift " + std::to_string(shift));
    const auto width = static_cast<size_t>(shape.width);
    const auto gradient = random_values(shape.rows * shape.width, shape.type, 21);
    std::vector<double> table(static_cast<size_t>(shape.vocab) * width), sizes = table;
    std::vector<double> positions(static_cast<size_t>(shape.seq) * width), position_sizes = positions;
    for (size_t i = 0; i < gradient.size(); ++i) {
      const int64_t token = tokens[i / width];
      const size_t p = i / width % static_cast<size_t>(shape.seq) * width + i % width;
      positions[p] += gradient[i], position_sizes[p] += std::abs(gradient[i]);
      if (token < 0 || token >= shape.vocab) continue;
      const size_t t = static_cast<size_t>(token) * width + i % width;
      table[t] += gradient[i], sizes[t] += std::abs(gradient[i]);
    }
    const size_t bytes = shift * size_of(shape.type);
    const DeviceMemory dy = to_device(gradient, shape.type, bytes), wanted = to_device(tokens),
                       d_table(table.size() * size_of(shape.type), bytes),
                       d_positions(positions.size() * size_of(shape.type), bytes),
                       scratch(embedding_backward_scratch(shape));
    embedding_backward(shape, wanted.get<int64_t>(), dy.get(), d_table.get(),
                       with_positions ? d_positions.get() : nullptr, scratch.get(), stream_);
    wait();
    const auto compare = [&](const DeviceMemory& actual, const std::vector<double>& sums, const std::vector<double>& of,
                             const char* what) {
      const auto values = to_host(actual, shape.type);
      for (size_t i = 0; i < values.size(); ++i) {
        ASSERT_NEAR(values[i], sums[i], 1.01 * rounding_of(shape.type) * std::abs(sums[i]) + 2e-6 * of[i])
            << what << " row " << i / width << " column " << i % width;
      }
    };
    compare(d_table, table, sizes, "d_table");
    if (with_positions) compare(d_positions, positions, position_sizes, "d_positions");
  }
};

TEST_F(TokensTest, CrossEntropyOfAnyShape) {
  for (const Type type : kTokenTypes) {
    for (const bool gradient : {true, false}) {
      run_cross_entropy(5, 1, 1, type, 0, gradient);
      run_cross_entropy(9, 3, 5, type, 1, gradient);
      run_cross_entropy(6, 17, 17, type, 1, gradient);
      run_cross_entropy(33, 512, 512, type, 0, gradient);
      run_cross_entropy(12, 5000, 5003, type, 0, gradient);
      run_cross_entropy(18, 50257, 50257, type, 0, gradient);
      run_cross_entropy(5, 50257, 50304, type, 0, gradient);
      run_cross_entropy(3, 50304, 50304, type, 0, gradient);
    }
  }
}

TEST_F(TokensTest, CrossEntropyOfRowsTooLongForSharedMemory) {
  run_cross_entropy(4, 128255, 128255, Type::kBFloat16, 0, true);
  run_cross_entropy(4, 100001, 100001, Type::kFloat, 1, true);
}

TEST_F(TokensTest, CrossEntropyWithMaskedLogits) {
  std::vector<float> logits(3000, -INFINITY);
  logits[5] = 1, logits[2999] = 1;
  const DeviceMemory data = to_device(logits), target = to_device(std::vector<int64_t>{5}), loss(4);
  cross_entropy({1, 3000, 3000, Type::kFloat}, data.get(), target.get<int64_t>(), 1, true, loss.get<float>(), stream_);
  wait();
  EXPECT_NEAR(to_host<float>(loss)[0], std::log(2.0), 1e-6);
  const auto gradient = to_host<float>(data);
  EXPECT_NEAR(gradient[5], -0.5, 1e-6);
  EXPECT_NEAR(gradient[2999], 0.5, 1e-6);
  EXPECT_EQ(gradient[6], 0);
}

TEST_F(TokensTest, SumAll) {
  for (const int64_t count : {0, 1, 3, 1000, 65536, 1000003}) {
    for (const size_t shift : {0, 4}) {
      const auto values = random_values(count, Type::kFloat, 31, 1, 2);
      double expected = 0;
      for (const float value : values) expected += value;
      const DeviceMemory from = to_device(values, shift), sum(4);
      sum_all(from.get<float>(), count, 0.5f, sum.get<float>(), stream_);
      wait();
      EXPECT_NEAR(to_host<float>(sum)[0], expected / 2, 1e-6 * std::abs(expected)) << count << " shift " << shift;
    }
  }
}

TEST_F(TokensTest, Embedding) {
  for (const Type type : kTokenTypes) {
    for (const EmbeddingShape& shape : {EmbeddingShape{7, 7, 1, 3, type},
                                        {40, 10, 768, 101, type},
                                        {33, 11, 100, 50, type},
                                        {20, 5, 2056, 9, type},
                                        {9, 3, 77, 5, type}}) {
      for (const bool with_positions : {true, false}) {
        SCOPED_TRACE(std::string(name_of(type)) + " " + std::to_string(shape.rows) + " x " +
                     std::to_string(shape.width));
        const auto table = random_values(shape.vocab * shape.width, type, 41);
        const auto positions = random_values(shape.seq * shape.width, type, 42);
        auto tokens = random_tokens(shape.rows, shape.vocab, 43);
        tokens[1] = -1, tokens[3] = shape.vocab;
        std::vector<double> expected;
        for (int64_t i = 0; i < shape.rows * shape.width; ++i) {
          const int64_t row = i / shape.width, column = i % shape.width, token = tokens[static_cast<size_t>(row)];
          double value = NAN;
          if (token >= 0 && token < shape.vocab) value = table[static_cast<size_t>(token * shape.width + column)];
          if (with_positions) value += positions[static_cast<size_t>(row % shape.seq * shape.width + column)];
          expected.push_back(value);
        }
        const DeviceMemory from = to_device(table, type), added = to_device(positions, type),
                           wanted = to_device(tokens), y(expected.size() * size_of(type));
        embedding(shape, wanted.get<int64_t>(), from.get(), with_positions ? added.get() : nullptr, y.get(), stream_);
        wait();
        expect_close(to_host(y, type), expected, 1.01 * rounding_of(type), 1e-7, "y");
      }
    }
  }
}

TEST_F(TokensTest, EmbeddingBackward) {
  for (const Type type : kTokenTypes) {
    auto some_unknown = random_tokens(1000, 50, 51);
    some_unknown[0] = -1, some_unknown[999] = 50, some_unknown[500] = int64_t{1} << 40;
    run_embedding_backward({1000, 100, 96, 50, type}, some_unknown, true);
    run_embedding_backward({1000, 100, 33, 50, type}, some_unknown, true);
    run_embedding_backward({1000, 100, 96, 50, type}, some_unknown, true, 1);
    run_embedding_backward({1, 1, 768, 3, type}, {2}, true);
    run_embedding_backward({64, 64, 8, 64, type}, random_tokens(64, 64, 52), false);
    run_embedding_backward({65, 13, 1032, 7, type}, random_tokens(65, 7, 53), true);
    run_embedding_backward({0, 4, 16, 9, type}, {}, true);
    run_embedding_backward({4096, 512, 768, 50257, type}, random_tokens(4096, 50257, 54), true);
  }
}

TEST_F(TokensTest, EmbeddingBackwardOfFrequentTokens) {
  for (const Type type : {Type::kFloat, Type::kBFloat16}) {
    run_embedding_backward({5000, 1000, 40, 3, type}, std::vector<int64_t>(5000, 1), false);
    run_embedding_backward({128, 128, 40, 3, type}, std::vector<int64_t>(128, 2), false);  // ends with its chunk
    std::vector<int64_t> tokens = random_tokens(6000, 200, 55);
    for (size_t i = 0; i < tokens.size(); i += 2) tokens[i] = 7;
    run_embedding_backward({6000, 1000, 768, 200, type}, tokens, true);
    std::vector<int64_t> runs(64 * 6);  // runs that begin and end where chunks do, and across
    for (size_t i = 0; i < runs.size(); ++i) runs[i] = i < 64 ? 0 : i < 192 ? 1 : i < 200 ? 2 : i < 321 ? 3 : 4;
    run_embedding_backward({384, 384, 24, 5, type}, runs, false);
  }
}

/// Captures what `launch` does, runs the graph twice, and gives what then lies in `result`.
std::vector<uint32_t> from_graph(const std::function<void()>& launch, const DeviceMemory& result, cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
  launch();
  check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  check(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
  for (int i = 0; i < 2; ++i) check(cudaGraphLaunch(executable, stream), "cudaGraphLaunch");
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  return to_host<uint32_t>(result);
}

TEST_F(TokensTest, GraphsGiveTheSameBits) {
  const EmbeddingShape shape{6000, 1000, 768, 5000, Type::kBFloat16};
  const auto gradient = random_values(shape.rows * shape.width, shape.type, 61);
  const DeviceMemory dy = to_device(gradient, shape.type), tokens = to_device(random_tokens(6000, 5000, 62)),
                     plain(size_t{5000} * 768 * 2), captured(plain.bytes()), d_positions(size_t{1000} * 768 * 2),
                     scratch(embedding_backward_scratch(shape));
  const auto launch = [&](const DeviceMemory& to) {
    embedding_backward(shape, tokens.get<int64_t>(), dy.get(), to.get(), d_positions.get(), scratch.get(), stream_);
  };
  launch(plain);
  wait();
  EXPECT_EQ(to_host<uint32_t>(plain), from_graph([&] { launch(captured); }, captured, stream_));

  // Without the gradient, so that the second run finds the same logits.
  const DeviceMemory logits = to_device(random_values(18 * 50257, Type::kFloat, 63), Type::kBFloat16),
                     targets = to_device(random_tokens(18, 50257, 64)), losses(18 * 4), again(18 * 4);
  const auto loss = [&](const DeviceMemory& to) {
    cross_entropy({18, 50257, 50257, Type::kBFloat16}, logits.get(), targets.get<int64_t>(), 1, false, to.get<float>(),
                  stream_);
  };
  loss(losses);
  wait();
  EXPECT_EQ(to_host<uint32_t>(losses), from_graph([&] { loss(again); }, again, stream_));
}

}  // namespace
}  // namespace trireme::gpu
