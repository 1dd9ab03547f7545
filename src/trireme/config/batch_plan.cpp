#include "trireme/config/batch_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/config/layout_of.h"
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

/// Whether a step of `num_micro_batches` can be split into `leaves` (0: derived), and these over `dp` replicas.
bool splits(int64_t num_micro_batches, int64_t leaves, int64_t dp) {
  if (leaves == 0) leaves = derived_leaves(num_micro_batches);
  return num_micro_batches % leaves == 0 && leaves % dp == 0;
}

/// "nearest train.global_batch: 96 or 104": values that work with everything else unchanged; empty if there are none.
std::string nearest_batches(const Config& config, int64_t dp) {
  const TrainConfig& train = config.train;
  const int64_t leaves = train.leaves;
  if (leaves == 0 ? dp > kMostDerivedLeaves : leaves % dp != 0) return "";
  // Which numbers work repeats every 840 = lcm(1 … 8) if leaves are derived, every `leaves` otherwise.
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

/// "dp = 1, 2 or 4 works as it is": numbers of replicas that work with everything else unchanged; empty if none do.
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

/// The smallest few numbers of leaves that work for this number of micro-batches and dp.
std::vector<int64_t> working_leaves(int64_t num_micro_batches, int64_t dp) {
  constexpr size_t kMostShown = 6;
  std::vector<int64_t> found;
  for (int64_t leaves = dp; leaves <= num_micro_batches && found.size() < kMostShown; leaves += dp) {
    if (num_micro_batches % leaves == 0) found.push_back(leaves);
  }
  return found;
}

/// The cure if the leaves are at fault. dp divides the number of micro-batches.
std::string leaves_cure(const Config& config, int64_t num_micro_batches, int64_t dp) {
  const std::string fixed = "leaves are part of what fixes the numbers: another count changes their last bits";
  std::string cure = fmt::format("train.leaves = {} would work", alternatives(working_leaves(num_micro_batches, dp)));
  cure = either(cure, nearest_batches(config, dp));
  return either(cure, working_replicas(config)) + "; " + fixed;
}

constexpr int64_t kMostBatchPart = 1'000'000;

/// Throws unless the leaves can be divided as parallel.shares says.
void check_parts(const Config& config, const Layout& layout) {
  const std::string& text = config.parallel.shares;
  if (static_cast<int64_t>(layout.batch_parts.size()) != layout.dp) {
    throw wrong_key("parallel.shares",
                    fmt::format("parallel.shares = \"{}\" has {} shares, and there are {} replicas", text,
                                layout.batch_parts.size(), layout.dp),
                    "give one for each");
  }
  const int64_t sum = std::accumulate(layout.batch_parts.begin(), layout.batch_parts.end(), int64_t{0});
  if (layout.leaves % sum == 0) return;
  const std::vector<int64_t> working = working_leaves(layout.micro_batches(), sum);
  throw wrong_key("parallel.shares",
                  fmt::format("parallel.shares = \"{}\" are {} parts, and train.leaves = {} cannot be split into them",
                              text, sum, layout.leaves),
                  working.empty() ? fmt::format("make train.global_batch a multiple of {} micro-batches", sum)
                                  : fmt::format("train.leaves = {} would work; leaves are part of what fixes the "
                                                "numbers: another count changes their last bits",
                                                alternatives(working)));
}

}  // namespace

std::vector<int64_t> batch_parts_of(const Config& config) {
  const std::string& text = config.parallel.shares;
  std::vector<int64_t> batch_parts;
  for (const std::string_view word : split(text, ',')) {
    int64_t batch_part = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), batch_part);
    if (error != std::errc() || end != word.data() + word.size() || batch_part < 1 || batch_part > kMostBatchPart) {
      throw wrong_key(
          "parallel.shares",
          fmt::format("parallel.shares = \"{}\" {}: \"{}\" is no share", text, origin(config, "parallel.shares"), word),
          "give a number of 1 or more for each replica: \"3,1\"");
    }
    batch_parts.push_back(batch_part);
  }
  return batch_parts;
}

Layout plan_batch(const Config& config, int64_t dp) {
  const TrainConfig& train = config.train;
  Layout layout = layout_of(config);
  layout.dp = dp;
  const bool alike = config.parallel.stages.empty();
  const std::string dp_text = alike ? fmt::format("dp = {} {}", dp, origin(config, "parallel.dp"))
                                    : fmt::format("{} lanes, the least common multiple of the replicas of {}", dp,
                                                  with_origin(config, "parallel.stages"));
  const auto other_dp = [&] { return alike ? working_replicas(config) : ""; };
  const std::string batch_text = fmt::format("train.global_batch = {}", train.global_batch);
  const std::string micro_text = fmt::format("{} {}", train.micro_batch, origin(config, "train.micro_batch"));
  if (train.micro_batch > train.global_batch) {
    throw wrong_key("train.global_batch", fmt::format("{} is less than one micro-batch of {}", batch_text, micro_text),
                    fmt::format("set train.micro_batch to {} or less", std::max<int64_t>(train.global_batch / dp, 1)));
  }
  const bool even = config.parallel.shares.empty();
  if (even && train.global_batch % dp != 0) {
    throw wrong_key("train.global_batch", fmt::format("{} cannot be split over {}", batch_text, dp_text),
                    either(nearest_batches(config, dp), other_dp()));
  }
  if (train.global_batch % train.micro_batch != 0) {
    throw wrong_key("train.global_batch",
                    fmt::format("{} is not a number of micro-batches of {}", batch_text, micro_text),
                    nearest_batches(config, dp));
  }
  const int64_t micro_batches = layout.micro_batches();
  if (even && micro_batches % dp != 0) {
    // The largest micro-batch, up to the requested size, that divides a replica's part of the batch.
    int64_t micro = std::min(train.micro_batch, train.global_batch / dp);
    while (train.global_batch / dp % micro != 0) --micro;
    throw wrong_key(
        "train.global_batch",
        fmt::format("{} is {} micro-batches of {}, which cannot be split over {}", batch_text, micro_batches,
                    micro_text, dp_text),
        either(either(nearest_batches(config, dp), fmt::format("set train.micro_batch = {}", micro)), other_dp()));
  }
  layout.leaves = layout.num_leaves();
  const std::string leaves_text = fmt::format("train.leaves = {} ({})", layout.leaves,
                                              train.leaves > 0 ? config.origins.phrase("train.leaves") : "derived");
  if (micro_batches % layout.leaves != 0) {
    throw wrong_key("train.leaves",
                    fmt::format("{} does not divide the {} micro-batches of a step", leaves_text, micro_batches),
                    leaves_cure(config, micro_batches, dp));
  }
  if (!even) {
    check_parts(config, layout);
    return layout;
  }
  if (layout.leaves % dp != 0) {
    throw wrong_key("train.leaves", fmt::format("{} cannot be split over {}", leaves_text, dp_text),
                    leaves_cure(config, micro_batches, dp));
  }
  return layout;
}

}  // namespace trireme
