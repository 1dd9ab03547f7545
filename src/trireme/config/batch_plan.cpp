#include "trireme/config/batch_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/config/value.h"
#include "trireme/program/reduction_tree.h"

namespace trireme {
namespace {

/// "A", "A or B", "A, B or C".
std::string alternatives(const std::vector<int64_t>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0) text += i + 1 == numbers.size() ? " or " : ", ";
    text += std::to_string(numbers[i]);
  }
  return text;
}

std::string origin(const Config& config, std::string_view key) {
  return fmt::format("({}, {})", key, config.origins.phrase(key));
}

/// Whether a step of so many micro-batches can be split, as far as train.leaves and dp say.
bool splits(int64_t num_micro_batches, int64_t leaves, int64_t dp) {
  if (leaves == 0) leaves = derived_leaves(num_micro_batches);
  return num_micro_batches % leaves == 0 && leaves % dp == 0;
}

/// "nearest train.global_batch: 96 or 104", values that would work with everything else as it is; empty if none does.
std::string nearest_batches(const Config& config, int64_t dp) {
  const TrainConfig& train = config.train;
  const int64_t leaves = train.leaves;
  if (leaves == 0 ? dp > kMostDerivedLeaves : leaves % dp != 0) return "";
  // Every multiple of 840 = lcm(1 … 8) micro-batches, and every multiple of `leaves`, brings one.
  const int64_t reach = std::max<int64_t>(leaves, 840);
  const int64_t here = train.global_batch / train.micro_batch;
  std::vector<int64_t> found;
  for (int64_t n = here; n >= 1 && n > here - reach && found.empty(); --n) {
    if (splits(n, leaves, dp)) found.push_back(n * train.micro_batch);
  }
  for (int64_t n = here + 1, end = here + reach; n <= end; ++n) {
    if (!splits(n, leaves, dp)) continue;
    found.push_back(n * train.micro_batch);
    break;
  }
  return found.empty() ? "" : "nearest train.global_batch: " + alternatives(found);
}

/// "dp = 1, 2 or 4 works as it is": numbers of replicas for which nothing else has to change; empty if none does.
std::string working_replicas(const Config& config) {
  constexpr size_t kMostShown = 6;
  const TrainConfig& train = config.train;
  if (train.global_batch % train.micro_batch != 0) return "";
  const int64_t num_micro_batches = train.global_batch / train.micro_batch;
  const int64_t leaves = train.leaves > 0 ? train.leaves : derived_leaves(num_micro_batches);
  if (num_micro_batches % leaves != 0) return "";
  std::vector<int64_t> found;
  for (int64_t dp = 1; dp <= leaves && found.size() < kMostShown; ++dp) {
    if (leaves % dp == 0) found.push_back(dp);
  }
  return fmt::format("dp = {} works as it is", alternatives(found));
}

std::string either(const std::string& one, const std::string& other) {
  return one.empty() || other.empty() ? one + other : one + "; or " + other;
}

/// Numbers of leaves that work for this number of micro-batches and dp: the smallest few.
std::vector<int64_t> working_leaves(int64_t num_micro_batches, int64_t dp) {
  constexpr size_t kMostShown = 6;
  std::vector<int64_t> found;
  for (int64_t leaves = dp; leaves <= num_micro_batches && found.size() < kMostShown; leaves += dp) {
    if (num_micro_batches % leaves == 0) found.push_back(leaves);
  }
  return found;
}

/// What to do where the leaves are at fault. dp divides the number of micro-batches.
std::string leaves_cure(const Config& config, int64_t num_micro_batches, int64_t dp) {
  const std::string fixed = "leaves are part of what fixes the numbers: another count changes their last bits";
  std::string cure = fmt::format("train.leaves = {} would work", alternatives(working_leaves(num_micro_batches, dp)));
  cure = either(cure, nearest_batches(config, dp));
  return either(cure, working_replicas(config)) + "; " + fixed;
}

constexpr int64_t kMostShare = 1'000'000;

/// parallel.shares, each a number of leaves.
std::vector<int64_t> leaves_of_shares(const Config& config, const BatchPlan& plan) {
  std::vector<int64_t> shares = shares_of(config);
  const std::string& text = config.parallel.shares;
  const int64_t sum = std::accumulate(shares.begin(), shares.end(), int64_t{0});
  if (static_cast<int64_t>(shares.size()) != plan.dp) {
    throw UsageError(
        fmt::format("parallel.shares = \"{}\" has {} shares, and there are {} replicas", text, shares.size(), plan.dp),
        "give one for each");
  }
  if (plan.leaves % sum != 0) {
    const std::vector<int64_t> working = working_leaves(plan.num_micro_batches, sum);
    throw UsageError(
        fmt::format("parallel.shares = \"{}\" are {} parts, and train.leaves = {} cannot be split into them", text, sum,
                    plan.leaves),
        working.empty() ? fmt::format("make train.global_batch a multiple of {} micro-batches", sum)
                        : fmt::format("train.leaves = {} would work; leaves are part of what fixes the "
                                      "numbers: another count changes their last bits",
                                      alternatives(working)));
  }
  for (int64_t& share : shares) share *= plan.leaves / sum;
  return shares;
}

}  // namespace

std::vector<int64_t> shares_of(const Config& config) {
  const std::string& text = config.parallel.shares;
  std::vector<int64_t> shares;
  for (const std::string_view word : split(text, ',')) {
    int64_t share = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), share);
    if (error != std::errc() || end != word.data() + word.size() || share < 1 || share > kMostShare) {
      throw UsageError(
          fmt::format("parallel.shares = \"{}\" {}: \"{}\" is no share", text, origin(config, "parallel.shares"), word),
          "give a number of 1 or more for each replica: \"3,1\"");
    }
    shares.push_back(share);
  }
  return shares;
}

BatchPlan plan_batch(const Config& config, int64_t dp) {
  const TrainConfig& train = config.train;
  BatchPlan plan;
  plan.global_batch = train.global_batch;
  plan.micro_batch = train.micro_batch;
  plan.dp = dp;
  const bool alike = config.parallel.stages.empty();
  const std::string dp_text = alike ? fmt::format("dp = {} {}", dp, origin(config, "parallel.dp"))
                                    : fmt::format("{} lanes, the least common multiple of the replicas of {}", dp,
                                                  with_origin(config, "parallel.stages"));
  const auto other_dp = [&] { return alike ? working_replicas(config) : ""; };
  const std::string batch_text = fmt::format("train.global_batch = {}", train.global_batch);
  const std::string micro_text = fmt::format("{} {}", train.micro_batch, origin(config, "train.micro_batch"));
  if (train.micro_batch > train.global_batch) {
    throw UsageError(fmt::format("{} is less than one micro-batch of {}", batch_text, micro_text),
                     fmt::format("set train.micro_batch to {} or less", std::max<int64_t>(train.global_batch / dp, 1)));
  }
  const bool even = config.parallel.shares.empty();
  if (even && train.global_batch % dp != 0) {
    throw UsageError(fmt::format("{} cannot be split over {}", batch_text, dp_text),
                     either(nearest_batches(config, dp), other_dp()));
  }
  if (train.global_batch % train.micro_batch != 0) {
    throw UsageError(fmt::format("{} is not a number of micro-batches of {}", batch_text, micro_text),
                     nearest_batches(config, dp));
  }
  plan.num_micro_batches = train.global_batch / train.micro_batch;
  if (even && plan.num_micro_batches % dp != 0) {
    // The replica's share in one micro-batch, or the largest part of it that is not above what was asked for.
    int64_t micro = std::min(train.micro_batch, train.global_batch / dp);
    while (train.global_batch / dp % micro != 0) --micro;
    throw UsageError(
        fmt::format("{} is {} micro-batches of {}, which cannot be split over {}", batch_text, plan.num_micro_batches,
                    micro_text, dp_text),
        either(either(nearest_batches(config, dp), fmt::format("set train.micro_batch = {}", micro)), other_dp()));
  }
  plan.leaves = train.leaves > 0 ? train.leaves : derived_leaves(plan.num_micro_batches);
  const std::string leaves_text = fmt::format("train.leaves = {} ({})", plan.leaves,
                                              train.leaves > 0 ? config.origins.phrase("train.leaves") : "derived");
  if (plan.num_micro_batches % plan.leaves != 0) {
    throw UsageError(
        fmt::format("{} does not divide the {} micro-batches of a step", leaves_text, plan.num_micro_batches),
        leaves_cure(config, plan.num_micro_batches, dp));
  }
  if (!even) {
    plan.shares = leaves_of_shares(config, plan);
    plan.accumulation =
        *std::max_element(plan.shares.begin(), plan.shares.end()) * plan.num_micro_batches / plan.leaves;
    return plan;
  }
  if (plan.leaves % dp != 0) {
    throw UsageError(fmt::format("{} cannot be split over {}", leaves_text, dp_text),
                     leaves_cure(config, plan.num_micro_batches, dp));
  }
  plan.accumulation = plan.num_micro_batches / dp;
  return plan;
}

}  // namespace trireme
