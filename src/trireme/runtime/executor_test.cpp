#include "trireme/runtime/executor.h"

#include <gtest/gtest.h>

#include <memory>

#include "trireme/base/error.h"
#include "trireme/comm/world.h"
#include "trireme/program/data_parallel.h"

namespace trireme {
namespace {

constexpr int kLeaves = 24;
constexpr int kSteps = 3;

torch::Tensor random_values(at::IntArrayRef shape, int seed) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(seed));
  return torch::randn(shape, generator);
}

struct Outcome {
  std::vector<torch::Tensor> weights;
  std::vector<torch::Tensor> values;  ///< of each step: loss, square of the loss, count
};

/// Three layers, one of which nothing uses, trained by plain descent.
class Toy {
 public:
  Toy(Communicator* comm, int num_ranks, int rank, int leaf_size, bool overlap) : num_(leaf_size * kLeaves) {
    int seed = 1;
    std::vector<GradientSource> sources;
    for (const auto& [name, shape] : {std::pair<const char*, std::vector<int64_t>>{"first", {9, 4}},
                                      {"bias", {9}},
                                      {"unused", {3}},
                                      {"last", {2, 9}}}) {
      weights_.push_back((0.5 * random_values(shape, seed++)).set_requires_grad(true));
      sources.push_back({name, weights_.back()});
    }
    // The slots are as many as the program says; how many groups there are, the store says.
    const auto shape = [&](int groups) { return DataParallelShape{num_, kLeaves, num_ranks, groups}; };
    const int num_slots = lower_data_parallel(shape(1), rank).num_slots;
    store_ = std::make_unique<GradientStore>(
        comm, sources,
        GradientStoreOptions{
            .num_slots = num_slots, .num_host_shared_slots = 1, .bucket_bytes = 40, .first_bucket_bytes = 40});
    const Stage model{
        [this](const Tensors&, int micro_batch, torch::Tensor values) { return Tensors{forward(micro_batch, values)}; },
        store_.get(), /*num_values=*/3};
    executor_ = std::make_unique<Executor>(lower_data_parallel(shape(store_->num_groups() + 1), rank),
                                           std::map<int, Stage>{{-1, model}},
                                           ExecutorOptions{.replicas = comm, .overlap = overlap});
  }

  Outcome train() {
    Outcome outcome;
    for (step_ = 0; step_ < kSteps; ++step_) {
      executor_->run([this](const Instruction&) { descend(); });
      outcome.values.push_back(executor_->values(-1).clone());
    }
    for (const torch::Tensor& weight : weights_) outcome.weights.push_back(weight.detach().clone());
    return outcome;
  }
  Executor& executor() { return *executor_; }
  GradientStore& store() { return *store_; }
  int fails_at = -1;  ///< micro-batch

 private:
  torch::Tensor forward(int micro_batch, torch::Tensor values) {
    if (micro_batch == fails_at) throw Error("no more data");
    const int seed = 100 * (step_ * num_ + micro_batch);
    const torch::Tensor x = random_values({5, 4}, seed), y = random_values({5, 2}, seed + 1);
    const torch::Tensor hidden = torch::tanh(torch::addmm(weights_[1], x, weights_[0].t()));
    const torch::Tensor loss = torch::mse_loss(torch::matmul(hidden, weights_[3].t()), y);
    values.copy_(torch::stack({loss.detach(), (loss * loss).detach(), torch::ones({})}));
    return loss;
  }

  void descend() {
    torch::NoGradGuard no_grad;
    for (size_t i = 0; i < weights_.size(); ++i) weights_[i].sub_(store_->gradient(0, i), 0.1 / num_);
  }

  const int num_;
  int step_ = 0;
  std::vector<torch::Tensor> weights_;
  std::unique_ptr<GradientStore> store_;
  std::unique_ptr<Executor> executor_;
};

Outcome train(int num_ranks, int leaf_size, bool overlap = true) {
  std::vector<Outcome> of_rank(static_cast<size_t>(num_ranks));
  run_as_threads(num_ranks, [&](World& world) {
    at::set_num_threads(1);
    Communicator* comm = num_ranks == 1 ? nullptr : &world.comm();
    of_rank[static_cast<size_t>(world.rank())] = Toy(comm, num_ranks, world.rank(), leaf_size, overlap).train();
  });
  for (const Outcome& outcome : of_rank) {
    for (size_t i = 0; i < outcome.weights.size(); ++i) {
      EXPECT_TRUE(torch::equal(outcome.weights[i], of_rank[0].weights[i])) << "ranks drifted apart";
    }
  }
  return of_rank.back();
}

void expect_equal(const Outcome& a, const Outcome& b, const std::string& what) {
  for (size_t i = 0; i < a.weights.size(); ++i) {
    EXPECT_TRUE(torch::equal(a.weights[i], b.weights[i])) << what << ": weight " << i;
  }
  for (size_t i = 0; i < a.values.size(); ++i) {
    EXPECT_TRUE(torch::equal(a.values[i], b.values[i])) << what << ": values of step " << i;
  }
}

TEST(Executor, NumbersDoNotDependOnTheNumberOfRanks) {
  for (const int leaf_size : {1, 2}) {
    const Outcome alone = train(1, leaf_size);
    EXPECT_EQ(alone.values[0][2].item<float>(), leaf_size * kLeaves);
    EXPECT_LT(alone.values[kSteps - 1][0].item<float>(), alone.values[0][0].item<float>() * 1.5);
    for (const int num_ranks : {2, 3, 4, 6, 8, 12}) {
      expect_equal(train(num_ranks, leaf_size), alone, std::to_string(num_ranks) + " ranks");
    }
  }
}

TEST(Executor, OverlapChangesNothingButTime) {
  for (const int num_ranks : {1, 2, 3}) {
    expect_equal(train(num_ranks, 1, false), train(num_ranks, 1, true), std::to_string(num_ranks) + " ranks");
  }
}

TEST(Executor, AnotherSplitIntoLeavesIsAnotherSum) {
  // If this were equal, too, the tests above would prove nothing.
  const Outcome a = train(1, 1), b = train(1, 2);
  EXPECT_FALSE(torch::equal(a.weights[0], b.weights[0]));
}

TEST(Executor, ReplayTouchesNobody) {
  run_as_threads(2, [](World& world) {
    Toy toy(&world.comm(), 2, world.rank(), 1, true);
    if (world.rank() == 0) toy.executor().replay();  // rank 1 does not come, and need not
    EXPECT_EQ(toy.executor().reducer().bytes_reduced(), 0u);
  });
}

TEST(Executor, RefusesAProgramOfAnotherModel) {
  const torch::Tensor weight = torch::zeros({2}).set_requires_grad(true);
  GradientStore store(nullptr, {{"weight", weight}}, {});
  const Stage stage{{}, &store, 1};
  EXPECT_THROW(Executor(lower_data_parallel({1, 1, 1, 3}, 0), {{-1, stage}}, {}), Error);
}

TEST(Executor, AFailedForwardLeavesTheWeights) {
  Toy toy(nullptr, 1, 0, 1, true);
  int num_steps = 0;
  toy.fails_at = 5;
  EXPECT_THROW(toy.executor().run([&](const Instruction&) { ++num_steps; }), Error);
  EXPECT_EQ(num_steps, 0);
}

}  // namespace
}  // namespace trireme
