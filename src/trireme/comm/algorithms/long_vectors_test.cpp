// All-reduces of vectors so long that algorithms cut what they send into several blocks.
#include <gtest/gtest.h>

#include "trireme/comm/algorithms/messenger.h"
#include "trireme/comm/world.h"

namespace trireme {
namespace {

TEST(LongVectors, AreSummedBlockByBlock) {
  constexpr size_t kBlock = Messenger::kBlockBytes / sizeof(float);
  for (const int p : {2, 3}) {
    const size_t count = static_cast<size_t>(p) * (4 * kBlock + 17) + 1;
    run_as_threads(p, [&](World& world) {
      for (const Algorithm algorithm : all_algorithms()) {
        if (algorithm == Algorithm::kTwoLevel) continue;  // needs two hosts
        std::vector<float> data(count);
        for (size_t i = 0; i < count; ++i)
          data[i] = static_cast<float>((i % 1001) * (1u + static_cast<size_t>(world.rank())));
        CallOptions options;
        options.algorithm = algorithm;
        options.ordered = false;
        world.comm().all_reduce(data, ReduceOp::kSum, options);
        const size_t factor = static_cast<size_t>(p * (p + 1) / 2);
        for (size_t i = 0; i < count; ++i) {
          ASSERT_EQ(data[i], static_cast<float>((i % 1001) * factor))
              << name_of(algorithm) << ", " << p << " ranks, " << i;
        }
      }
    });
  }
}

}  // namespace
}  // namespace trireme
