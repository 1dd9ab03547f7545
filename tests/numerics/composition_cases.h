// What goes with what: every combination of sharing, parallelism, compression, precision, recomputation and aggregation
// either trains as its reference does, or is refused with a sentence.
#pragma once

#include "numerics/training.h"
#include "trireme/base/error.h"
#include "trireme/config/check.h"
#include "trireme/config/compatibility.h"

namespace trireme {

struct Composed {
  int zero = 0, tp = 1, pp = 1;
  std::string compression = "none", precision = "float32", recompute = "none", aggregation = "average";

  int workers() const { return 2 * tp * pp; }
  std::string to_string() const {
    return fmt::format("zero {}, tp {}, pp {}, {}, {}, recompute {}, {}", zero, tp, pp, compression, precision,
                       recompute, aggregation);
  }
  /// Two replicas; two micro-batches each, so that a pipeline has something to do.
  Config config() const {
    return config_of("gpt2", {"--optimizer.warmup_steps=0", "--optimizer.lr=0.005", "--train.leaves=4",
                              "--train.global_batch=4", "--parallel.dp=2", fmt::format("--parallel.zero={}", zero),
                              fmt::format("--parallel.tp={}", tp), fmt::format("--parallel.pp={}", pp),
                              "--compression.method=" + compression, "--precision.compute=" + precision,
                              "--train.recompute=" + recompute, "--parallel.aggregation=" + aggregation});
  }
  /// What its numbers are compared with: nothing shared, cut or computed again, sums by all-reduce; tensor parallelism
  /// and precision as they are, for both round.
  Composed reference() const {
    Composed plain;
    plain.tp = tp;
    plain.precision = precision;
    return plain;
  }
  bool operator<(const Composed& other) const { return to_string() < other.to_string(); }
};

inline std::vector<Composed> all_composed() {
  std::vector<Composed> all;
  for (const char* aggregation : {"average", "server"})
    for (const char* compression : {"none", "topk", "qsgd", "int8"})
      for (const int tp : {1, 2})
        for (const int pp : {1, 2})
          for (const char* precision : {"float32", "bfloat16"})
            for (const char* recompute : {"none", "full"})
              for (const int zero : {0, 1, 2, 3})
                all.push_back({zero, tp, pp, compression, precision, recompute, aggregation});
  return all;
}

/// How much of the dense fall a training with compression must reach, in percent. topk sends a hundredth, and on its
/// way to servers the largest of each tensor, not of a whole bucket: in so few steps less is learnt from as many bytes.
inline int least_fraction(const Composed& each) {
  return each.compression != "topk" ? 80 : each.aggregation == "server" ? 15 : 20;
}

/// "equal", "learns", or why it is refused.
inline std::string verdict_of(const Composed& each, std::map<Composed, Outcome>& references) {
  constexpr int kSteps = 10;
  try {
    check(each.config(), each.workers());
  } catch (const UsageError& error) {
    const std::string words = error.what();
    return "refused: " + words.substr(0, words.find('\n'));
  }
  const Composed plain = each.reference();
  if (!references.contains(plain)) references[plain] = train(plain.config(), plain.workers(), kSteps);
  const Outcome& expected = references.at(plain);
  const Outcome outcome = train(each.config(), each.workers(), kSteps);
  if (each.compression == "none") {
    expect_equal(outcome, expected, each.to_string());
    return "equal";
  }
  EXPECT_GT(fall_of(expected), 0.1) << "there is too little to learn";
  EXPECT_GT(fall_of(outcome), 0.01 * least_fraction(each) * fall_of(expected)) << each.to_string();
  return "learns";
}

/// The end of docs/composition.md: the table of rules.
inline std::string rules_text() {
  std::string text = R"(
## What is refused

Both conditions of a row together are refused, with this reason and this cure.
The rows are those of `src/trireme/config/compatibility.cpp`, which the planner reads as well.

)";
  const auto cell = [](const Condition& condition) { return fmt::format("`{}` {}", condition.key, condition.says); };
  for (const RuleScope scope : {RuleScope::kEveryTraining, RuleScope::kThisTrainer}) {
    text += scope == RuleScope::kEveryTraining ? "What no trainer could run; `trireme simulate` refuses it as well:\n\n"
                                               : "\nWhat this trainer does not run:\n\n";
    text += "| key | reason | other key | cure |\n| --- | --- | --- | --- |\n";
    for (const Rule& rule : rules(scope)) {
      text += fmt::format("| {} | {} | {} | {} |\n", cell(rule.one), rule.reason, cell(rule.other), rule.cure);
    }
  }
  return text;
}

}  // namespace trireme
