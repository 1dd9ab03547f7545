// Tests that training with every method ends where training without it does, over three seeds.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>

#include "trireme/comm/world.h"
#include "trireme/compress/adasum.h"
#include "trireme/compress/compress_test_util.h"
#include "trireme/compress/compressed_reducer.h"
#include "trireme/compress/local_sgd.h"
#include "trireme/compress/one_bit_adam.h"

namespace trireme {
namespace {

constexpr size_t kClasses = 12, kFeatures = 40, kSamples = 120;  // samples of one rank
constexpr size_t kCount = kClasses * kFeatures + kClasses;
constexpr int kRanks = 2;  // as many as the smallest machine runs at once
constexpr uint64_t kSteps = 300;

GroupLayout layout() {
  return {"model", kCount, {{"weight", 0, kClasses, kFeatures}, {"bias", kClasses * kFeatures, 1, kClasses}}};
}

/// Softmax regression on data that differ from rank to rank, so that no rank's gradient is the others'.
class Problem {
 public:
  Problem(uint64_t seed, int rank) : features_(kSamples * kFeatures), labels_(kSamples) {
    std::vector<float> truth(kClasses * kFeatures), shift(kFeatures), noise(kSamples * kClasses);
    Philox(seed, "truth").fill_normal(truth);
    Philox(seed, "shift", static_cast<uint64_t>(rank)).fill_normal(shift);
    Philox(seed, "features", static_cast<uint64_t>(rank)).fill_normal(features_);
    Philox(seed, "noise", static_cast<uint64_t>(rank)).fill_normal(noise);
    for (size_t s = 0; s < kSamples; ++s) {
      float best = -1e9f;
      for (size_t f = 0; f < kFeatures; ++f) features_[s * kFeatures + f] += 0.5f * shift[f];
      for (size_t c = 0; c < kClasses; ++c) {
        float score = 3 * noise[s * kClasses + c];
        for (size_t f = 0; f < kFeatures; ++f) score += truth[c * kFeatures + f] * features_[s * kFeatures + f];
        if (score > best) labels_[s] = c;
        best = std::max(best, score);
      }
    }
  }

  /// The mean loss of this rank's samples with a small penalty, and its gradient.
  double gradient(std::span<const float> model, std::span<float> out) const {
    constexpr float kDecay = 1e-2f;
    double loss = 0;
    for (size_t i = 0; i < kCount; ++i) {
      out[i] = kDecay * model[i];
      loss += 0.5 * kDecay * model[i] * model[i];
    }
    for (size_t s = 0; s < kSamples; ++s) {
      const float* const x = features_.data() + s * kFeatures;
      double scores[kClasses], most = -1e30, sum = 0;
      for (size_t c = 0; c < kClasses; ++c) {
        scores[c] = model[kClasses * kFeatures + c];
        for (size_t f = 0; f < kFeatures; ++f) scores[c] += model[c * kFeatures + f] * x[f];
        most = std::max(most, scores[c]);
      }
      for (double& score : scores) sum += score = std::exp(score - most);
      loss -= std::log(scores[labels_[s]] / sum) / kSamples;
      for (size_t c = 0; c < kClasses; ++c) {
        const auto error = static_cast<float>((scores[c] / sum - (c == labels_[s] ? 1 : 0)) / kSamples);
        for (size_t f = 0; f < kFeatures; ++f) out[c * kFeatures + f] += error * x[f];
        out[kClasses * kFeatures + c] += error;
      }
    }
    return loss;
  }

 private:
  std::vector<float> features_;
  std::vector<size_t> labels_;
};

/// One rank's training: gets the communicator, the problem and the model, which is 0 at first.
using Training = std::function<void(Communicator&, const Problem&, std::span<float>)>;

/// The loss over all ranks' samples of the mean of their models.
double loss_after(uint64_t seed, const Training& train) {
  double result = 0;
  run_as_threads(kRanks, [&](World& world) {
    const Problem problem(seed, world.rank());
    std::vector<float> model(kCount), scratch(kCount);
    train(world.comm(), problem, model);
    world.comm().all_reduce(model, ReduceOp::kAverage);
    std::vector<double> loss = {problem.gradient(model, scratch)};
    world.comm().all_reduce(loss, ReduceOp::kAverage);
    if (world.rank() == 0) result = loss[0];
  });
  return result;
}

/// SGD with momentum; with dgc the momentum is the method's.
Training sgd(const CompressionOptions& options) {
  return [options](Communicator& comm, const Problem& problem, std::span<float> model) {
    CompressedReducer reducer(comm, options, {layout()});
    std::vector<float> gradient(kCount), velocity(kCount);
    const float momentum = options.method == Method::kDgc ? 0 : 0.9f;
    for (uint64_t step = 0; step < kSteps; ++step) {
      problem.gradient(model, gradient);
      reducer.start(0, gradient, step);
      reducer.finish();
      const float lr = step < kSteps * 2 / 3 ? 0.05f : 0.01f;
      for (size_t i = 0; i < kCount; ++i) {
        velocity[i] = momentum * velocity[i] + gradient[i] / kRanks;
        model[i] -= lr * velocity[i];
      }
    }
  };
}

/// How far from the best loss, as a fraction of the way there from the beginning.
double distance(double loss, double best) { return (loss - best) / (std::log(static_cast<double>(kClasses)) - best); }

double best_loss(uint64_t seed) {
  static std::map<uint64_t, double> known;
  const auto found = known.find(seed);
  if (found != known.end()) return found->second;
  return known[seed] = loss_after(seed, [](Communicator& comm, const Problem& problem, std::span<float> model) {
           std::vector<float> gradient(kCount), velocity(kCount);
           for (int step = 0; step < 2000; ++step) {
             problem.gradient(model, gradient);
             comm.all_reduce(gradient, ReduceOp::kAverage);
             for (size_t i = 0; i < kCount; ++i) {
               velocity[i] = 0.9f * velocity[i] + gradient[i];
               model[i] -= 0.05f * velocity[i];
             }
           }
         });
}

/// What each method may be away from the best after these few steps; 0.0003 without compression.
double allowed_distance(const CompressionOptions& options) {
  switch (options.method) {
    case Method::kDgc:  // an element loses its momentum when it is sent
      return 0.04;
    case Method::kTernGrad:
      return 0.008;
    case Method::kQsgd:
      return options.bits == 1 ? 0.15 : options.bits == 2 ? 0.008 : 0.002;
    default:
      return 0.002;
  }
}

class Convergence : public testing::TestWithParam<uint64_t> {
 protected:
  void SetUp() override {
    if (std::getenv("TRIREME_SANITIZED") != nullptr) GTEST_SKIP() << "long, and the same code as in the other tests";
  }
};

TEST_P(Convergence, EveryMethodEndsNearTheBest) {
  const double best = best_loss(GetParam());
  for (CompressionOptions options : all_options()) {
    if (options.method == Method::kOneBitAdam) continue;  // below, with its own optimizer
    options.warmup_steps = options.method == Method::kDgc ? 60 : 0;
    const double far = distance(loss_after(GetParam(), sgd(options)), best);
    RecordProperty(label(options), std::to_string(far));
    EXPECT_LT(far, allowed_distance(options)) << label(options);
    EXPECT_GT(far, -1e-4) << label(options);
  }
}

TEST_P(Convergence, WithoutErrorFeedbackItDoesNot) {
  // The test above can fail: what error feedback is for is seen when it is left out.
  const double best = best_loss(GetParam());
  const CompressionOptions with{.method = Method::kTopK, .density = 0.005};
  CompressionOptions without = with;
  without.error_feedback = false;
  const double near = distance(loss_after(GetParam(), sgd(with)), best);
  const double far = distance(loss_after(GetParam(), sgd(without)), best);
  EXPECT_GT(far, 4 * near);
  EXPECT_GT(far, 0.05);
}

/// A step of the warm-up: Adam with bias corrections.
void adam_step(const OneBitAdamSettings& s, uint64_t step, std::span<const float> gradient, std::span<float> weight,
               std::span<float> first, std::span<float> second) {
  const double number = static_cast<double>(step) + 1;
  const auto lr = static_cast<float>(s.lr / (1 - std::pow(static_cast<double>(s.beta1), number)));
  const auto inverse_root = static_cast<float>(1 / std::sqrt(1 - std::pow(static_cast<double>(s.beta2), number)));
  for (size_t i = 0; i < weight.size(); ++i) {
    first[i] = s.beta1 * first[i] + (1 - s.beta1) * gradient[i];
    second[i] = s.beta2 * second[i] + (1 - s.beta2) * (gradient[i] * gradient[i]);
    weight[i] -= lr * first[i] / (std::sqrt(second[i]) * inverse_root + s.eps);
  }
}

TEST_P(Convergence, OneBitAdamEndsNearTheBest) {
  const double best = best_loss(GetParam());
  for (const bool compressed : {false, true}) {
    const double loss = loss_after(GetParam(), [&](Communicator& comm, const Problem& problem, std::span<float> model) {
      const uint64_t warmup = compressed ? 100 : kSteps;
      const CompressionOptions options{.method = Method::kOneBitAdam, .warmup_steps = warmup};
      CompressedReducer reducer(comm, options, {layout()});
      std::vector<float> gradient(kCount), first(kCount), second(kCount);
      OneBitAdamSettings settings;
      for (uint64_t step = 0; step < kSteps; ++step) {
        settings.lr = step < kSteps / 2 ? 0.02f : 0.004f;
        problem.gradient(model, gradient);
        for (float& value : gradient) value /= kRanks;
        if (step >= warmup) to_moves(settings, warmup, kRanks, gradient, first, second);
        reducer.start(0, gradient, step);
        reducer.finish();
        if (step < warmup) {
          adam_step(settings, step, gradient, model, first, second);
        } else {
          to_momentum(settings, warmup, gradient, second, first);
          frozen_adam_step(settings, gradient, second, model);
        }
      }
    });
    EXPECT_LT(distance(loss, best), 0.02) << (compressed ? "1-bit" : "Adam");
  }
}

/// Plain steps of one rank, with what ranks do together after each.
Training alone(float lr,
               const std::function<std::function<void(uint64_t, std::span<float>)>(Communicator&)>& make_meet) {
  return [=](Communicator& comm, const Problem& problem, std::span<float> model) {
    const auto meet = make_meet(comm);
    std::vector<float> gradient(kCount);
    for (uint64_t step = 0; step < kSteps; ++step) {
      problem.gradient(model, gradient);
      const float rate = step < kSteps / 2 ? lr : step < kSteps * 3 / 4 ? lr / 4 : lr / 16;
      for (size_t i = 0; i < kCount; ++i) model[i] -= rate * gradient[i];
      meet(step, model);
    }
  };
}

TEST_P(Convergence, FewerMeetingsEndNearTheBest) {
  const double best = best_loss(GetParam());
  const auto local = [](MeetingPlan plan) {
    return alone(0.4f, [plan](Communicator& comm) {
      return [sgd = std::make_shared<LocalSgd>(comm, plan)](uint64_t step, std::span<float> model) {
        sgd->after_step(step, model);
      };
    });
  };
  EXPECT_LT(distance(loss_after(GetParam(), local({4, 0})), best), 0.02);
  EXPECT_LT(distance(loss_after(GetParam(), local({10, 150})), best), 0.02);
  for (const auto format : {std::optional<BlockFormat>(), std::optional(BlockFormat::kInt8)}) {
    const auto diloco = alone(0.3f, [format](Communicator& comm) {
      const std::vector<float> start(kCount);
      const DiLoCoOptions options{.plan = {10, 0}, .lr = 0.7f, .momentum = 0.5f, .format = format};
      return [outer = std::make_shared<DiLoCo>(comm, options, layout(), start)](uint64_t step, std::span<float> model) {
        outer->after_step(step, model);
      };
    });
    EXPECT_LT(distance(loss_after(GetParam(), diloco), best), 0.03) << format.has_value();
  }
  const Training with_adasum = [](Communicator& comm, const Problem& problem, std::span<float> model) {
    std::vector<float> gradient(kCount);
    for (uint64_t step = 0; step < kSteps; ++step) {
      problem.gradient(model, gradient);
      adasum(comm, layout(), gradient);
      const float lr = step < kSteps / 2 ? 0.3f : step < kSteps * 3 / 4 ? 0.1f : 0.03f;
      for (size_t i = 0; i < kCount; ++i) model[i] -= lr * gradient[i];
    }
  };
  EXPECT_LT(distance(loss_after(GetParam(), with_adasum), best), 0.1);
}

INSTANTIATE_TEST_SUITE_P(Seeds, Convergence, testing::Values(1, 2, 3));

TEST(OneBitAdam, RefusesWhatDoesNotFit) {
  std::vector<float> two(2), three(3);
  EXPECT_ANY_THROW(to_moves({}, 5, 1, two, three, three));
  EXPECT_ANY_THROW(to_moves({}, 0, 1, three, three, three));
  EXPECT_ANY_THROW(to_momentum({}, 5, two, three, three));
  EXPECT_ANY_THROW(to_momentum({}, 0, three, three, three));
  EXPECT_ANY_THROW(frozen_adam_step({}, two, three, three));
}

TEST(OneBitAdam, LeavesWhatNeverHadAGradient) {
  std::vector<float> weight = {1, 1}, moves = {1, 1}, momentum = {0, 0};
  const std::vector<float> second = {0, 0.01f};
  const OneBitAdamSettings settings{.lr = 0.1f};
  to_moves(settings, 10, 1, moves, momentum, second);
  EXPECT_EQ(moves[0], 0.f);
  moves[0] = 1;  // as a sign would have it
  to_momentum(settings, 10, moves, second, momentum);
  frozen_adam_step(settings, moves, second, weight);
  EXPECT_EQ(momentum[0], 0.f);
  EXPECT_EQ(weight[0], 1.f);
  EXPECT_LT(weight[1], 1.f);
  EXPECT_NEAR(momentum[1], 1 - settings.beta1, 1e-6);
}

}  // namespace
}  // namespace trireme
