// Tests of messages to a server: nothing is lost, the size is the promised one, and damaged messages are refused.
#include "trireme/compress/message.h"

#include <gtest/gtest.h>

#include <cmath>

#include "trireme/base/error.h"
#include "trireme/compress/compress_test_util.h"

namespace trireme {
namespace {

TEST(Message, ServersAddWhatWorkersKeepNoMore) {
  constexpr size_t kCount = 1537, kSteps = 5;
  for (CompressionOptions options : all_options()) {
    if (!takes_one_message(options.method)) continue;
    options.momentum = 0;
    const bool exact = keeps_residual(options) || options.method == Method::kNone;
    const GroupLayout layout{"group", kCount, {}};
    std::vector<float> arrived(kCount);
    std::vector<double> given(kCount), kept(kCount);
    for (int rank = 0; rank < 3; ++rank) {
      const auto encoder = make_message_encoder(options, layout, rank, 3);
      std::vector<uint8_t> message;
      for (uint64_t step = 0; step < kSteps; ++step) {
        std::vector<float> values = test_values(kCount, static_cast<uint64_t>(rank), step);
        for (size_t i = 0; i < kCount; ++i) given[i] += values[i];
        encoder->encode(values, step, message);
        EXPECT_NEAR(8.0 * static_cast<double>(message.size()) / kCount, bits_per_element(options), 0.1)
            << label(options);
        add_message(options, step, message, arrived);
      }
      StatePieces pieces;
      encoder->save(pieces);
      for (const StatePiece& piece : pieces) {
        if (piece.name != "residual/group") continue;
        for (size_t i = 0; i < kCount; ++i) kept[i] += piece.values[i];
      }
    }
    // What rounds at random or to nearest is off by what one message rounds, here at most 15 times 0.2.
    for (size_t i = 0; i < kCount; ++i) {
      ASSERT_NEAR(arrived[i] + kept[i], given[i], exact ? 3e-6 : 3.0) << label(options) << " " << i;
    }
  }
}

TEST(Message, WarmUpIsDense) {
  const CompressionOptions options{.method = Method::kTopK, .warmup_steps = 1};
  const auto encoder = make_message_encoder(options, {"group", 100, {}}, 0, 1);
  std::vector<float> values = test_values(100, 1), arrived(100);
  const std::vector<float> gradient = values;
  std::vector<uint8_t> message;
  encoder->encode(values, 0, message);
  add_message(options, 0, message, arrived);
  EXPECT_EQ(arrived, gradient);
  encoder->encode(values, 1, message);
  EXPECT_EQ(message.size(), 4 + 6u);
}

TEST(Message, RefusesWhatDoesNotFit) {
  for (const CompressionOptions& options : all_options()) {
    if (!takes_one_message(options.method)) {
      EXPECT_THROW(make_message_encoder(options, {"group", 10, {}}, 0, 1), UsageError) << label(options);
      continue;
    }
    const auto encoder = make_message_encoder(options, {"group", 1000, {}}, 0, 1);
    std::vector<float> values = test_values(1000, 1), out(1000);
    std::vector<uint8_t> message;
    encoder->encode(values, 0, message);
    message.pop_back();
    EXPECT_THROW(add_message(options, 0, message, out), Error) << label(options);
    EXPECT_THROW(add_message(options, 0, {}, out), Error) << label(options);
    EXPECT_EQ(out, std::vector<float>(1000)) << label(options);
  }
}

}  // namespace
}  // namespace trireme
