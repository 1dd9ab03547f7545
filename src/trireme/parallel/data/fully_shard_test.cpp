#include "trireme/parallel/data/fully_shard.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/parallel/data/data_parallel.h"
#include "trireme/parallel/data/data_parallel_test_util.h"

namespace trireme {
namespace {

torch::nn::Sequential make_layers(uint64_t seed) {
  torch::nn::Sequential layers(torch::nn::Linear(12, 96), torch::nn::ReLU(), torch::nn::Linear(96, 130),
                               torch::nn::LayerNorm(torch::nn::LayerNormOptions({130})), torch::nn::Linear(130, 5));
  // Not from libtorch's generator, which all rank threads share.
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& parameter : layers->parameters()) parameter.copy_(0.1 * random_values(parameter.sizes(), seed++));
  return layers;
}

torch::Tensor loss_of(const torch::Tensor& y, int number) {
  return torch::mse_loss(y, random_values({4, 5}, 1000 + static_cast<uint64_t>(number)));
}

torch::Tensor batch(int number) { return random_values({4, 12}, static_cast<uint64_t>(number)); }

// DataParallel holds everything on every rank: the same bits.
TEST(FullyShard, TrainsAsDataParallelDoes) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const bool keep : {false, true}) {
      for (const double bucket_mb : {0.0001, 4.0}) {
        run_ranks(ranks, [&](World& world) {
          const uint64_t seed = 100 * static_cast<uint64_t>(world.rank());  // rank 0's weights count
          torch::nn::Sequential whole = make_layers(seed);
          DataParallel ddp(world.comm(), *whole);
          torch::optim::SGD of_whole(whole->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
          torch::nn::Sequential layers = make_layers(seed);
          FullyShard shard(world.comm(), layers, {.bucket_mb = bucket_mb, .keep = keep});
          torch::optim::SGD of_shard(shard.parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
          for (int step = 0; step < 4; ++step) {
            const int number = step * world.size() + world.rank();
            of_whole.zero_grad();
            const torch::Tensor expected = loss_of(whole->forward(batch(number)), number);
            expected.backward();
            ddp.synchronize();
            of_whole.step();
            const torch::Tensor loss = loss_of(shard.forward(batch(number)), number);
            EXPECT_TRUE(torch::equal(loss, expected)) << ranks << " ranks, step " << step;
            shard.backward(loss);
            of_shard.step();
            shard.publish();
          }
          for (const auto& item : whole->named_parameters()) {
            EXPECT_TRUE(torch::equal(shard.gather(item.key()), item.value())) << item.key();
          }
        });
      }
    }
  }
}

TEST(FullyShard, HoldsAPart) {
  run_ranks(4, [&](World& world) {
    torch::nn::Sequential layers;
    for (int i = 0; i < 16; ++i) layers->push_back(torch::nn::Linear(128, 128));
    FullyShard shard(world.comm(), layers, {.bucket_mb = 0.01});
    shard.backward(shard.forward(torch::randn({2, 128})).sum());
    const double whole = 16 * 128 * 129 * 8.0;  // weights and gradients
    EXPECT_LT(static_cast<double>(shard.num_bytes()), 0.5 * whole);
  });
}

TEST(FullyShard, TiedParametersAreRefused) {
  run_ranks(2, [&](World& world) {
    torch::nn::Linear twice(8, 8);
    torch::nn::Sequential layers(twice, torch::nn::ReLU(), twice);
    EXPECT_THROW(FullyShard(world.comm(), layers), UsageError);
  });
}

}  // namespace
}  // namespace trireme
