// The rules of optimizers, against the formulas in double precision, whole and in parts.
#include "trireme/optimizer/rule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "trireme/base/philox.h"
#include "trireme/optimizer/kernels.h"

namespace trireme {
namespace {

std::vector<float> values(size_t count, uint64_t seed) {
  std::vector<float> all(count);
  Philox(seed, "values").fill_normal(all);
  return all;
}

struct Reference {
  double weight, first = 0, second = 0;
};

/// The formulas of the papers, element by element.
void update(const UpdateRule& rule, const UpdateRule::Step& step, Reference& r, double gradient) {
  const double decay = step.decays ? rule.weight_decay : 0;
  double g = gradient * step.factor;
  if (rule.kind != OptimizerKind::kAdamW) g += decay * r.weight;
  if (rule.kind == OptimizerKind::kSgd) {
    r.first = rule.momentum * r.first + g;
    r.weight -= step.lr * (rule.nesterov ? g + rule.momentum * r.first : r.first);
    return;
  }
  const double t = static_cast<double>(step.step + 1);
  r.first = rule.beta1 * r.first + (1 - rule.beta1) * g;
  r.second = rule.beta2 * r.second + (1 - rule.beta2) * g * g;
  if (rule.kind == OptimizerKind::kAdamW) r.weight -= step.lr * decay * r.weight;
  const double first = r.first / (1 - std::pow(rule.beta1, t)), second = r.second / (1 - std::pow(rule.beta2, t));
  r.weight -= step.lr * first / (std::sqrt(second) + rule.eps);
}

TEST(UpdateRule, FollowsTheFormulasAndHasTheSameBitsInParts) {
  constexpr size_t kCount = 5003;
  for (const OptimizerKind kind : {OptimizerKind::kSgd, OptimizerKind::kAdam, OptimizerKind::kAdamW}) {
    for (const double momentum : {0.0, 0.9}) {
      for (const bool decays : {false, true}) {
        UpdateRule rule;
        rule.kind = kind;
        rule.momentum = momentum;
        rule.nesterov = momentum != 0 && decays;
        rule.weight_decay = 0.1;
        std::vector<float> weight = values(kCount, 1), parts = weight;
        std::vector<float> first(kCount), second(kCount), first_parts(kCount), second_parts(kCount);
        std::vector<Reference> reference;
        for (const float value : weight) reference.push_back({value});
        for (int64_t i = 0; i < 4; ++i) {
          const UpdateRule::Step step{.factor = 0.25, .lr = 0.01, .step = i, .decays = decays};
          const std::vector<float> gradient = values(kCount, 10 + static_cast<uint64_t>(i));
          const auto state = [&](std::vector<float>& all, bool has) { return has ? all.data() : nullptr; };
          rule.apply(step, weight.data(), gradient.data(), state(first, rule.has_first()),
                     state(second, rule.has_second()), kCount);
          for (size_t at = 0, n; at < kCount; at += n) {
            n = std::min<size_t>(1 + at % 77, kCount - at);
            rule.apply(step, parts.data() + at, gradient.data() + at,
                       rule.has_first() ? first_parts.data() + at : nullptr,
                       rule.has_second() ? second_parts.data() + at : nullptr, n);
          }
          for (size_t e = 0; e < kCount; ++e) update(rule, step, reference[e], gradient[e]);
        }
        EXPECT_EQ(weight, parts);
        EXPECT_EQ(first, first_parts);
        for (size_t e = 0; e < kCount; ++e) ASSERT_NEAR(weight[e], reference[e].weight, 2e-5) << e;
      }
    }
  }
}

TEST(BlockSquares, AddUpAsTheWholeDoes) {
  for (const size_t count : {size_t{0}, size_t{1}, size_t{4096}, size_t{4097}, size_t{50'001}}) {
    const std::vector<float> all = values(count, 3);
    std::vector<double> sums;
    const size_t cut = std::min(count, 2 * kSquaresBlock);
    append_block_squares(all.data(), cut, sums);
    append_block_squares(all.data() + cut, count - cut, sums);
    EXPECT_EQ(add_block_squares(sums), sum_of_squares(all.data(), count)) << count;
  }
}

}  // namespace
}  // namespace trireme
