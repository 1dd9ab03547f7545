// Our BatchNorm against libtorch's, alone and over two replicas.
#include "trireme/models/batch_norm.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/types.h>

#include <barrier>
#include <thread>

#include "trireme/models/built_in.h"
#include "trireme/models/models_test_util.h"

namespace trireme {
namespace {

constexpr int64_t kChannels = 6;

/// Values with a mean far from 0, so that a careless variance shows.
torch::Tensor make_input(int64_t samples) { return torch::randn({samples, kChannels, 5, 4}) * 2 + 30; }

struct Pair {
  torch::nn::BatchNorm2d theirs{kChannels};
  std::shared_ptr<BatchNorm> ours;

  explicit Pair(bool synchronized = false) : ours(std::make_shared<BatchNorm>(kChannels, synchronized)) {
    const torch::NoGradGuard no_grad;
    theirs->weight.copy_(torch::rand({kChannels}) + 0.5);
    theirs->bias.copy_(torch::randn({kChannels}));
    copy_to(*ours);
  }
  void copy_to(BatchNorm& norm) const {
    const torch::NoGradGuard no_grad;
    norm.weight.copy_(theirs->weight);
    norm.bias.copy_(theirs->bias);
  }
};

/// Gradients of sum(output · factor).
struct Normalised {
  torch::Tensor output, input_grad;
};

template <typename Norm>
Normalised normalise(Norm& norm, const torch::Tensor& input, const torch::Tensor& factor) {
  const auto x = input.detach().clone().requires_grad_(true);
  const auto y = norm.forward(x);
  (y * factor).sum().backward();
  return {y.detach(), x.grad()};
}

TEST(BatchNorm, EqualsLibtorchsInTraining) {
  Pair norms;
  const auto x = make_input(4), factor = torch::randn_like(x);
  const Normalised theirs = normalise(*norms.theirs, x, factor), ours = normalise(*norms.ours, x, factor);
  EXPECT_TRUE(torch::equal(ours.output, theirs.output));
  EXPECT_TRUE(torch::equal(ours.input_grad, theirs.input_grad));
  EXPECT_TRUE(torch::equal(norms.ours->weight.grad(), norms.theirs->weight.grad()));
  EXPECT_TRUE(torch::equal(norms.ours->bias.grad(), norms.theirs->bias.grad()));
  // The running buffers are the step's to change.
  EXPECT_EQ(norms.ours->running_mean.abs().sum().item<float>(), 0);
  const auto followed = [](const torch::Tensor& running, const torch::Tensor& observed) {
    return running + 0.1 * (observed - running);
  };
  EXPECT_TRUE(torch::allclose(followed(norms.ours->running_mean, norms.ours->observed_mean), norms.theirs->running_mean,
                              1e-6, 1e-7));
  EXPECT_TRUE(torch::allclose(followed(norms.ours->running_var, norms.ours->observed_var), norms.theirs->running_var,
                              1e-6, 1e-7));
}

TEST(BatchNorm, EqualsLibtorchsInEvaluation) {
  Pair norms;
  const torch::NoGradGuard no_grad;
  for (torch::nn::Module* norm :
       {static_cast<torch::nn::Module*>(norms.theirs.get()), static_cast<torch::nn::Module*>(norms.ours.get())}) {
    norm->eval();
    norm->named_buffers()["running_mean"].fill_(29);
    norm->named_buffers()["running_var"].fill_(5);
  }
  const auto x = make_input(3);
  EXPECT_TRUE(torch::equal(norms.ours->forward(x), norms.theirs->forward(x)));
}

TEST(BatchNorm, ManyForwardsMayComeBeforeTheirBackwards) {
  Pair norms;
  const auto a = make_input(2).requires_grad_(true), b = make_input(2).requires_grad_(true);
  const auto first = norms.ours->forward(a).square().sum(), second = norms.ours->forward(b).square().sum();
  second.backward();
  first.backward();
  EXPECT_TRUE(a.grad().isfinite().all().item<bool>());
}

/// Two threads that sum their tensors; the order of the sum is fixed.
class Rendezvous {
 public:
  SumOverReplicas replica(size_t index) {
    return [this, index](torch::Tensor& sums) {
      parts_[index] = sums.clone();
      barrier_.arrive_and_wait();
      sums.copy_(parts_[0] + parts_[1]);
      barrier_.arrive_and_wait();
    };
  }

 private:
  std::array<torch::Tensor, 2> parts_;
  std::barrier<> barrier_{2};
};

TEST(BatchNorm, TwoReplicasEqualTheWholeBatch) {
  Pair norms(true);
  const auto x = make_input(8), factor = torch::randn_like(x);
  const Normalised whole = normalise(*norms.theirs, x, factor);

  const std::array<int64_t, 3> cut = {0, 3, 8};  // replicas need not have equally many samples
  Rendezvous rendezvous;
  std::array<Normalised, 2> halves;
  std::array<std::shared_ptr<BatchNorm>, 2> replicas;
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < 2; ++i) {
      replicas[i] = std::make_shared<BatchNorm>(kChannels, true);
      norms.copy_to(*replicas[i]);
      set_sum_over_replicas(*replicas[i], rendezvous.replica(i));
      threads.emplace_back([&, i] {
        const int64_t size = cut[i + 1] - cut[i];
        halves[i] = normalise(*replicas[i], x.narrow(0, cut[i], size), factor.narrow(0, cut[i], size));
      });
    }
  }
  const auto near = [](const torch::Tensor& a, const torch::Tensor& b) { return torch::allclose(a, b, 1e-5, 1e-5); };
  EXPECT_TRUE(near(torch::cat({halves[0].output, halves[1].output}), whole.output));
  EXPECT_TRUE(near(torch::cat({halves[0].input_grad, halves[1].input_grad}), whole.input_grad));
  EXPECT_TRUE(near(replicas[0]->weight.grad() + replicas[1]->weight.grad(), norms.theirs->weight.grad()));
  EXPECT_TRUE(near(replicas[0]->bias.grad() + replicas[1]->bias.grad(), norms.theirs->bias.grad()));
  for (const auto& replica : replicas) {
    EXPECT_TRUE(near(0.1 * replica->observed_mean, norms.theirs->running_mean));
    EXPECT_TRUE(near(0.9 + 0.1 * replica->observed_var, norms.theirs->running_var));
  }
}

TEST(BatchNorm, ReplicasThatDoNotSynchronizeAreLeftAlone) {
  const auto norm = std::make_shared<BatchNorm>(kChannels, false);
  set_sum_over_replicas(*norm, [](torch::Tensor&) { FAIL() << "nobody asked for it"; });
  norm->forward(make_input(2));
}

TEST(BatchNorm, AModelListsItsStatistics) {
  const ModelConfig config = small_config(ModelKind::kResNet);
  const auto model = make_model(config, 1);
  const auto statistics = model->statistics();
  ASSERT_EQ(statistics.size(), 2u * 20);
  EXPECT_EQ(statistics[0].buffer, "bn1.running_mean");
  EXPECT_EQ(statistics.back().buffer, "layer4.1.bn2.running_var");
  model->forward(small_input(config, 4));
  const auto buffers = model->named_buffers();
  for (const Statistic& statistic : statistics) {
    EXPECT_TRUE(buffers[statistic.buffer].is_same(statistic.running)) << statistic.buffer;
    EXPECT_EQ(statistic.observed->sizes(), statistic.running.sizes()) << statistic.buffer;
    EXPECT_FALSE(torch::equal(*statistic.observed, statistic.running)) << statistic.buffer;
  }
}

}  // namespace
}  // namespace trireme
