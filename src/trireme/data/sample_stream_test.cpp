// The order of samples: each once an epoch, random to the eye, and the same for any number of workers.
#include "trireme/data/sample_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "trireme/data/data_test_util.h"
#include "trireme/data/permutation.h"
#include "trireme/data/tokens.h"

namespace trireme {
namespace {

std::vector<uint64_t> all(const Permutation& order) {
  std::vector<uint64_t> values(order.size());
  for (uint64_t i = 0; i < order.size(); ++i) values[i] = order(i);
  return values;
}

TEST(PermutationTest, IsABijectionForAnySize) {
  std::vector<uint64_t> sizes(70);
  std::iota(sizes.begin(), sizes.end(), 1);
  for (uint64_t power = 128; power <= 65536; power *= 2) sizes.insert(sizes.end(), {power - 1, power, power + 1});
  for (const uint64_t n : {uint64_t{1000}, uint64_t{99 * 101}, uint64_t{1000003}}) sizes.push_back(n);
  for (const uint64_t n : sizes) {
    std::vector<uint64_t> values = all(Permutation(n, 7, n % 5));
    std::vector<bool> seen(n);
    for (const uint64_t value : values) {
      ASSERT_LT(value, n);
      ASSERT_FALSE(seen[value]) << value << " twice of " << n;
      seen[value] = true;
    }
  }
}

TEST(PermutationTest, HugeSizesStayInRange) {
  const uint64_t n = (uint64_t{1} << 62) - 57;
  const Permutation order(n, 1, 0);
  uint64_t above_half = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    ASSERT_LT(order(n - 1 - i), n);
    above_half += order(i) > n / 2;
  }
  EXPECT_NEAR(static_cast<double>(above_half), 500, 80);
  EXPECT_THROW(Permutation(0, 1, 0), UsageError);
}

TEST(PermutationTest, SeedAndEpochChangeTheOrder) {
  const auto first = all(Permutation(1000, 1, 0));
  EXPECT_EQ(first, all(Permutation(1000, 1, 0)));
  for (const auto& other : {all(Permutation(1000, 1, 1)), all(Permutation(1000, 2, 0))}) {
    int same = 0;
    for (size_t i = 0; i < 1000; ++i) same += first[i] == other[i];
    EXPECT_LT(same, 10) << "a random order shares about one place with another";
  }
}

TEST(PermutationTest, NeighboursAreUncorrelated) {
  for (const uint64_t n : {uint64_t{1000}, uint64_t{65537}, uint64_t{1000003}}) {
    const Permutation order(n, 3, 0);
    const double mean = static_cast<double>(n - 1) / 2,
                 variance = (static_cast<double>(n) * static_cast<double>(n) - 1) / 12;
    for (const uint64_t lag : {uint64_t{1}, uint64_t{2}, uint64_t{16}, static_cast<uint64_t>(std::sqrt(double(n)))}) {
      double sum = 0;
      const uint64_t count = std::min<uint64_t>(n - lag, 50000);
      for (uint64_t i = 0; i < count; ++i) {
        sum += (static_cast<double>(order(i)) - mean) * (static_cast<double>(order(i + lag)) - mean);
      }
      const double correlation = sum / static_cast<double>(count) / variance;
      EXPECT_LT(std::abs(correlation), 4.5 / std::sqrt(static_cast<double>(count))) << n << " lag " << lag;
    }
  }
}

TEST(PermutationTest, EveryPlaceIsAsLikelyForSmallSizes) {
  for (const uint64_t n : {uint64_t{2}, uint64_t{3}, uint64_t{5}, uint64_t{12}}) {
    constexpr uint64_t kSeeds = 6000;
    std::vector<double> count(n * n);
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      const Permutation order(n, seed, seed % 3);
      for (uint64_t i = 0; i < n; ++i) ++count[i * n + order(i)];
    }
    const double expected = static_cast<double>(kSeeds) / static_cast<double>(n);
    for (const double seen : count) EXPECT_NEAR(seen, expected, 5 * std::sqrt(expected)) << "of " << n;
  }
}

/// Remembers which parts it was asked for.
class Parts : public Dataset {
 public:
  int64_t size() const override { return 3; }
  SampleShape shape() const override { return SampleShape::image(1, 2, 2); }
  mutable int num_images = 0, num_labels = 0;

 protected:
  void read_sample(int64_t index, const SampleSlot& slot) const override {
    num_images += !slot.input<float>().empty();
    num_labels += !slot.target<int64_t>().empty();
    if (!slot.target<int64_t>().empty()) slot.target<int64_t>()[0] = index;
  }
};

std::shared_ptr<const Dataset> numbered(int64_t num_samples, int64_t seq) {
  std::vector<int32_t> ids(static_cast<size_t>(num_samples * seq + 1));
  std::iota(ids.begin(), ids.end(), 0);
  return split_tokens({TokenPiece::of_ids(ids)}, seq, {}, "numbers").train;
}

TEST(SampleStreamTest, EachSampleOnceAnEpochAndAnotherOrderNextTime) {
  const SampleStream stream(numbered(101, 4), 5);
  std::vector<int64_t> previous;
  for (int64_t epoch = 0; epoch < 4; ++epoch) {
    std::vector<int64_t> order;
    for (int64_t i = 0; i < 101; ++i) {
      EXPECT_EQ(stream.epoch_at(epoch * 101 + i), epoch);
      order.push_back(stream.index_at(epoch * 101 + i));
    }
    EXPECT_NE(order, previous);
    previous = order;
    std::sort(order.begin(), order.end());
    for (int64_t i = 0; i < 101; ++i) ASSERT_EQ(order[static_cast<size_t>(i)], i);
  }
}

TEST(SampleStreamTest, ReadsOnlyTheWantedParts) {
  const auto data = std::make_shared<Parts>();
  const Batch labels = SampleStream(data, 0, SampleOrder::kAsStored, {.inputs = false}).read(0, 3);
  EXPECT_EQ(data->num_images, 0);
  EXPECT_TRUE(labels.input<float>().empty());
  EXPECT_EQ(labels.target<int64_t>(), (std::vector<int64_t>{0, 1, 2}));
  const Batch images = SampleStream(data, 0, SampleOrder::kAsStored, {.targets = false}).read(0, 3);
  EXPECT_EQ(data->num_labels, 3);
  EXPECT_EQ(data->num_images, 3);
  EXPECT_EQ(images.input<float>().size(), 12u);
  EXPECT_TRUE(images.target<int64_t>().empty());
  const Batch nothing = SampleStream(data, 0, SampleOrder::kAsStored, {false, false}).read(0, 3);
  EXPECT_EQ(nothing, Batch(data->shape(), 3, {false, false}));
}

TEST(SampleStreamTest, PartsOfATextAreThoseOfTheWhole) {
  const auto data = numbered(7, 3);
  const Batch whole = SampleStream(data, 1).read(2, 9);
  EXPECT_EQ(SampleStream(data, 1, SampleOrder::kShuffled, {.targets = false}).read(2, 9).input<int64_t>(),
            whole.input<int64_t>());
  EXPECT_EQ(SampleStream(data, 1, SampleOrder::kShuffled, {.inputs = false}).read(2, 9).targets, whole.targets);
}

TEST(SampleStreamTest, AnyPartitionAmongAnyNumberOfWorkersGivesTheSameSamples) {
  const SampleStream one(numbered(37, 3), 11);
  constexpr int64_t kTotal = 150;  // four epochs
  const Batch whole = one.read(0, kTotal);
  std::mt19937 random(1);
  for (int trial = 0; trial < 50; ++trial) {
    const size_t num_workers = random() % 9 + 1;
    // Each worker has a stream of its own, and reads its parts in an order of its own.
    std::vector<SampleStream> workers;
    for (size_t i = 0; i < num_workers; ++i) workers.emplace_back(numbered(37, 3), 11);
    std::vector<std::pair<int64_t, int64_t>> parts;
    for (int64_t at = 0; at < kTotal;) {
      const int64_t count = std::min<int64_t>(random() % 40, kTotal - at);
      parts.emplace_back(at, count);
      at += count;
    }
    std::shuffle(parts.begin(), parts.end(), random);
    Batch joined(one.dataset().shape(), kTotal);
    for (size_t i = 0; i < parts.size(); ++i) {
      const auto [at, count] = parts[i];
      const Batch part = workers[i % num_workers].read(at, count);
      ASSERT_EQ(part.count, count);
      const auto place = [at = at](const std::vector<int64_t>& tokens, std::vector<FieldValues>& whole) {
        std::copy(tokens.begin(), tokens.end(), std::get<std::vector<int64_t>>(whole[0]).begin() + at * 3);
      };
      place(part.input<int64_t>(), joined.inputs);
      place(part.target<int64_t>(), joined.targets);
    }
    ASSERT_EQ(joined, whole);
  }
}

TEST(SampleStreamTest, TargetsAreTheTokensThatFollow) {
  const SampleStream stream(numbered(9, 5), 1, SampleOrder::kAsStored);
  const Batch batch = stream.read(0, 9);
  for (size_t i = 0; i < 45; ++i) {
    EXPECT_EQ(batch.input<int64_t>()[i], static_cast<int64_t>(i));
    EXPECT_EQ(batch.target<int64_t>()[i], static_cast<int64_t>(i) + 1) << "every token but the first is a target once";
  }
}

TEST(SampleStreamTest, RefusesWhatCannotBe) {
  const SampleStream stream(numbered(9, 5), 1);
  expect_says(message_of([&] { stream.read(-3, 2); }), {"position -3"});
  expect_says(message_of([&] { stream.read(0, -2); }), {"-2 samples"});
  expect_says(message_of([&] { stream.read(std::numeric_limits<int64_t>::max() - 1, 2); }), {"too many"});
  EXPECT_THROW(SampleStream(nullptr, 1), UsageError);
  Batch batch(SampleShape::language(5), 2);
  expect_says(message_of([&] { stream.dataset().read(9, batch, 0); }), {"sample 9", "0 to 8"});
  expect_says(message_of([&] { stream.dataset().read(0, batch, 2); }), {"place 2"});
  Batch other(SampleShape::language(4), 2);
  expect_says(message_of([&] { stream.dataset().read(0, other, 0); }), {"another shape"});
}

}  // namespace
}  // namespace trireme
