#include "trireme/parallel/data/data_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "trireme/parallel/data/data_parallel_test_util.h"

namespace trireme {
namespace {

using testing::HasSubstr;
using Tensors = std::vector<torch::Tensor>;

constexpr int kSteps = 3;
/// Buckets so small that every parameter has its own.
const DataParallelOptions kManyBuckets{.bucket_mb = 1e-5, .first_bucket_mb = 1e-5};

/// What one process computes that takes the batches of all ranks one after another and sums along the tree.
Tensors train_alone(int num_batches, bool average = true) {
  Tensors result;
  run_ranks(1, [&](World&) {
    ToyModel model(7);
    torch::optim::AdamW optimizer = make_adamw(model);
    for (int step = 0; step < kSteps; ++step) {
      std::vector<Tensors> of_batch;
      for (int batch = 0; batch < num_batches; ++batch) {
        of_batch.push_back(gradients_of(toy_loss(model, step * num_batches + batch), trained(model)));
      }
      for (size_t i = 0; i < trained(model).size(); ++i) {
        Tensors parts;
        for (const Tensors& gradients : of_batch) parts.push_back(gradients[i] * (average ? 1.0 / num_batches : 1.0));
        trained(model)[i].mutable_grad() = sum_along_tree(parts);
      }
      optimizer.step();
    }
    result = copies(trained(model));
  });
  return result;
}

struct Trained {
  std::vector<Tensors> of_rank;
  size_t bytes_reduced = 0;
  int num_buckets = 0;
};

Trained train_together(int num_ranks, const DataParallelOptions& options,
                       const std::function<void(DataParallel&)>& prepare = {}) {
  Trained result;
  result.of_rank.resize(static_cast<size_t>(num_ranks));
  run_ranks(num_ranks, [&](World& world) {
    ToyModel model(7 + 100 * static_cast<uint64_t>(world.rank()));  // only rank 0 begins as the reference does
    DataParallel ddp(world.comm(), model, options);
    if (prepare) prepare(ddp);
    torch::optim::AdamW optimizer = make_adamw(model);
    for (int step = 0; step < kSteps; ++step) {
      optimizer.zero_grad();
      toy_loss(model, step * world.size() + world.rank()).backward();
      ddp.synchronize();
      optimizer.step();
    }
    result.of_rank[static_cast<size_t>(world.rank())] = copies(trained(model));
    if (world.rank() == 0) {
      result.bytes_reduced = ddp.bytes_reduced();
      result.num_buckets = ddp.num_buckets();
    }
  });
  return result;
}

TEST(DataParallel, EqualsOneProcessBitForBit) {
  for (const int num_ranks : {1, 2, 3, 4}) {
    for (const bool average : {true, false}) {
      const Tensors alone = train_alone(num_ranks, average);
      for (DataParallelOptions options : {DataParallelOptions{}, kManyBuckets}) {
        options.average = average;
        for (options.overlap = false;; options.overlap = true) {
          const Trained together = train_together(num_ranks, options);
          for (const Tensors& of_rank : together.of_rank) {
            EXPECT_TRUE(equal(of_rank, alone)) << num_ranks << " ranks, overlap " << options.overlap;
          }
          if (options.overlap) break;
        }
      }
    }
  }
}

TEST(DataParallel, UnorderedSumsAgreeBetweenRanks) {
  DataParallelOptions options;
  options.ordered = false;
  const Trained together = train_together(3, options);
  EXPECT_TRUE(equal(together.of_rank[0], together.of_rank[1]) && equal(together.of_rank[0], together.of_rank[2]));
  EXPECT_LT(largest_difference(together.of_rank[0], train_alone(3)), 1e-3);
}

TEST(DataParallel, GradientsAreViewsOfTheBucketsAndOutliveThem) {
  run_ranks(2, [](World& world) {
    ToyModel model(1);
    Tensors before;
    {
      DataParallel ddp(world.comm(), model);
      toy_loss(model, world.rank()).backward();
      EXPECT_FALSE(model.first.grad().defined()) << "it is on its way";
      ddp.synchronize();
      EXPECT_TRUE(model.first.grad().is_alias_of(model.last.grad())) << "one bucket";
      EXPECT_TRUE(torch::equal(model.unused.grad(), torch::zeros({5})));
      EXPECT_FALSE(model.frozen.grad().defined());
      before = {model.first.grad().clone()};
    }
    EXPECT_TRUE(torch::equal(model.first.grad(), before[0]));
    EXPECT_FALSE(model.first.grad().is_alias_of(model.last.grad()));
    toy_loss(model, 0).backward();
    EXPECT_FALSE(torch::equal(model.first.grad(), before[0])) << "the hooks are gone: gradients are autograd's again";
  });
}

TEST(DataParallel, ClearedGradientsMayKeepTheirMemory) {
  std::vector<Tensors> of_way(2);
  for (const bool set_to_none : {false, true}) {
    run_ranks(2, [&](World& world) {
      ToyModel model(1);
      DataParallel ddp(world.comm(), model, kManyBuckets);
      torch::optim::SGD optimizer(trained(model), 0.1);
      for (int step = 0; step < kSteps; ++step) {
        optimizer.zero_grad(set_to_none);
        {
          auto guard = ddp.no_sync();
          toy_loss(model, 10 + step).backward();
        }
        toy_loss(model, step * 2 + world.rank()).backward();
        ddp.synchronize();
        optimizer.step();
      }
      if (world.rank() == 0) of_way[set_to_none ? 1 : 0] = copies(trained(model));
    });
  }
  EXPECT_TRUE(equal(of_way[0], of_way[1]));
}

TEST(DataParallel, NoSyncReducesTheSumOfLocalPasses) {
  run_ranks(2, [](World& world) {
    for (const bool overlap : {false, true}) {
      ToyModel model(1);
      std::vector<Tensors> of_batch;
      for (int batch = 0; batch < 6; ++batch) {
        of_batch.push_back(gradients_of(toy_loss(model, batch), trained(model)));
      }
      DataParallelOptions options = kManyBuckets;
      options.overlap = overlap;
      DataParallel ddp(world.comm(), model, options);
      for (int pass = 0; pass < 3; ++pass) {
        std::optional<DataParallel::NoSync> guard;
        if (pass < 2) guard.emplace(ddp.no_sync());
        toy_loss(model, world.rank() * 3 + pass).backward();
        if (guard) {
          EXPECT_EQ(ddp.bytes_reduced(), 0u);
          EXPECT_THROW(ddp.synchronize(), UsageError);
        }
      }
      ddp.synchronize();
      for (size_t i = 0; i < trained(model).size(); ++i) {
        const torch::Tensor low = (of_batch[0][i] + of_batch[1][i]) + of_batch[2][i];
        const torch::Tensor high = (of_batch[3][i] + of_batch[4][i]) + of_batch[5][i];
        EXPECT_TRUE(torch::equal(trained(model)[i].grad(), low * 0.5 + high * 0.5)) << "parameter " << i;
      }
    }
  });
}

/// Two parameters, of which each pass uses one.
struct TwoVectors : torch::nn::Module {
  torch::Tensor a = register_parameter("a", torch::ones({3})), b = register_parameter("b", torch::ones({20}));
  float of(const torch::Tensor& parameter) const { return parameter.grad()[0].item<float>(); }
};

TEST(DataParallel, GradientsOfTheLastStepDoNotReturn) {
  for (const bool set_to_none : {false, true}) {
    for (const bool last_uses_b : {false, true}) {
      run_ranks(2, [&](World& world) {
        TwoVectors model;
        DataParallel ddp(world.comm(), model, kManyBuckets);
        (7 * model.a.sum() + 9 * model.b.sum()).backward();
        ddp.synchronize();
        EXPECT_EQ(model.of(model.b), 9);
        model.zero_grad(set_to_none);
        {
          auto guard = ddp.no_sync();
          (2 * model.a.sum()).backward();
        }
        (last_uses_b ? 5 * model.b.sum() : 3 * model.a.sum()).backward();
        ddp.synchronize();
        EXPECT_EQ(model.of(model.a), last_uses_b ? 2 : 5);
        EXPECT_EQ(model.of(model.b), last_uses_b ? 5 : 0);
      });
    }
  }
}

TEST(DataParallel, GradientsThatAreNotClearedAreAddedTo) {
  run_ranks(2, [](World& world) {
    TwoVectors model;
    DataParallel ddp(world.comm(), model, kManyBuckets);
    for (const float expected : {3.0f, 6.0f, 9.0f}) {
      ((2 + 2 * world.rank()) * (model.a.sum() + model.b.sum())).backward();
      ddp.synchronize();
      EXPECT_EQ(model.of(model.a), expected);
      EXPECT_EQ(model.of(model.b), expected);
    }
  });
}

TEST(DataParallel, AveragesInHalfPrecisionDoNotOverflow) {
  run_ranks(4, [](World& world) {
    TwoVectors model;
    DataParallelOptions options;
    options.travel_type = torch::kFloat16;
    DataParallel ddp(world.comm(), model, options);
    (40'000 * (model.a.sum() + model.b.sum())).backward();
    ddp.synchronize();
    EXPECT_EQ(model.of(model.a), 40'000) << "the sum would be beyond float16";
  });
}

TEST(DataParallel, UnevenBatchesGiveTheMeanOverAllSamples) {
  constexpr int kRanks = 3;
  const std::vector<std::vector<int64_t>> rows_of_step{{4, 4, 4}, {5, 1, 2}, {3, 0, 6}, {0, 0, 1}, {0, 0, 0}};
  run_ranks(kRanks, [&](World& world) {
    ToyModel model(1);
    DataParallel ddp(world.comm(), model, kManyBuckets);
    size_t step = 0;
    for (;; ++step) {
      const std::vector<int64_t>& rows = rows_of_step[step];
      const int64_t own = rows[static_cast<size_t>(world.rank())];
      const int64_t total = ddp.agree(own);
      EXPECT_EQ(total, rows[0] + rows[1] + rows[2]);
      if (total == 0) break;
      Tensors expected;
      for (const torch::Tensor& parameter : trained(model)) expected.push_back(torch::zeros_like(parameter));
      for (int rank = 0; rank < kRanks; ++rank) {
        const int64_t of_rank = rows[static_cast<size_t>(rank)];
        if (of_rank == 0) continue;
        ToyModel copy(1);
        const Tensors gradients = gradients_of(toy_loss(copy, rank, of_rank), trained(copy));
        for (size_t i = 0; i < gradients.size(); ++i) {
          expected[i] += gradients[i] * (static_cast<double>(of_rank) / static_cast<double>(total));
        }
      }
      model.zero_grad();
      // A mean over no samples is NaN, and must do no harm: step 3 has one.
      if (own > 0 || step == 3) toy_loss(model, world.rank(), own).backward();
      ddp.synchronize();
      Tensors gradients;
      for (const torch::Tensor& parameter : trained(model)) gradients.push_back(parameter.grad());
      EXPECT_LT(largest_difference(gradients, expected), 1e-6) << "step " << step;
    }
    EXPECT_EQ(step, 4u);
    EXPECT_THROW(ddp.agree(-1), UsageError);
  });
}

TEST(DataParallel, ShortTypesHalveTheBytes) {
  const Tensors alone = train_alone(2);
  const Trained full = train_together(2, kManyBuckets);
  for (const torch::ScalarType type : {torch::kBFloat16, torch::kFloat16}) {
    DataParallelOptions options = kManyBuckets;
    options.travel_type = type;
    const Trained shortened = train_together(2, options);
    EXPECT_EQ(shortened.bytes_reduced * 2, full.bytes_reduced);
    EXPECT_TRUE(equal(shortened.of_rank[0], shortened.of_rank[1]));
    EXPECT_FALSE(equal(shortened.of_rank[0], alone)) << "something was rounded";
  }
  // One step of gradients, since an optimizer like AdamW magnifies what is near zero.
  run_ranks(2, [](World& world) {
    Tensors gradients[2];
    for (const bool is_short : {false, true}) {
      ToyModel model(1);
      DataParallelOptions options;
      if (is_short) options.travel_type = torch::kBFloat16;
      DataParallel ddp(world.comm(), model, options);
      toy_loss(model, world.rank()).backward();
      ddp.synchronize();
      for (const torch::Tensor& parameter : trained(model)) gradients[is_short].push_back(parameter.grad().clone());
    }
    for (size_t i = 0; i < gradients[0].size(); ++i) {
      const double largest = gradients[0][i].abs().max().item<double>();
      EXPECT_LE((gradients[0][i] - gradients[1][i]).abs().max().item<double>(), largest / 64);
    }
  });
}

TEST(DataParallel, HooksReplaceTheAllReduce) {
  const Trained plain = train_together(2, kManyBuckets);
  // The same by other means, started or done at once.
  const Trained started = train_together(2, kManyBuckets, [](DataParallel& ddp) {
    ddp.set_hook([](int, torch::Tensor values, Communicator& comm) { return comm.start_all_reduce(data_of(values)); });
  });
  EXPECT_TRUE(equal(started.of_rank[1], plain.of_rank[1]));
  EXPECT_EQ(started.bytes_reduced, 0u);
  // Half the precision and half the bytes: what travel_type does, by hand.
  std::mutex mutex;
  std::vector<int> buckets;
  const Trained halved = train_together(2, kManyBuckets, [&](DataParallel& ddp) {
    ddp.set_hook([&](int bucket, torch::Tensor values, Communicator& comm) {
      const torch::Tensor half = values.to(torch::kBFloat16);
      comm.all_reduce(data_of(half));
      values.copy_(half);
      if (comm.rank() == 0) {
        const std::lock_guard lock(mutex);
        buckets.push_back(bucket);
      }
      return Handle();
    });
  });
  DataParallelOptions options = kManyBuckets;
  options.travel_type = torch::kBFloat16;
  EXPECT_TRUE(equal(halved.of_rank[0], train_together(2, options).of_rank[0]));
  // Buckets go in one order on all ranks: those at the end of the model first.
  std::vector<int> expected;
  for (int step = 0; step < kSteps; ++step) {
    for (int bucket = 0; bucket < halved.num_buckets; ++bucket) expected.push_back(bucket);
  }
  EXPECT_EQ(halved.num_buckets, 5);
  EXPECT_EQ(buckets, expected);
}

TEST(DataParallel, UnusedParametersCanBeAnError) {
  DataParallelOptions options = kManyBuckets;
  options.unused_is_error = true;
  try {
    train_together(2, options);
    FAIL() << "nobody noticed";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("no gradient for unused\n"));
  }
}

TEST(DataParallel, DoublesStayDoubles) {
  run_ranks(2, [](World& world) {
    torch::nn::Linear model(torch::nn::LinearOptions(3, 2).bias(false));
    model->to(torch::kFloat64);
    DataParallel ddp(world.comm(), *model);
    const torch::Tensor x = random_values({4, 3}, 5).to(torch::kFloat64);
    (model->forward(x).sum() * (world.rank() + 1)).backward();
    ddp.synchronize();
    EXPECT_EQ(model->weight.grad().scalar_type(), torch::kFloat64);
    EXPECT_TRUE(torch::allclose(model->weight.grad(), 1.5 * x.sum(0).expand({2, 3}), 1e-14, 1e-14));
  });
}

TEST(DataParallel, BuffersBeginAlikeAndAreAveraged) {
  run_ranks(3, [](World& world) {
    ToyModel model(static_cast<uint64_t>(world.rank()));
    DataParallel ddp(world.comm(), model);
    EXPECT_TRUE(torch::equal(model.mean, ToyModel(0).mean));
    torch::NoGradGuard no_grad;
    model.mean.fill_(world.rank());
    model.count.fill_(10 + world.rank());
    ddp.average_buffers();
    EXPECT_TRUE(torch::equal(model.mean, torch::ones({4})));
    EXPECT_EQ(model.count.item<int64_t>(), 10);
  });
}

}  // namespace
}  // namespace trireme
