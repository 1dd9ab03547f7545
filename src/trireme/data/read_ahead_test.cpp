// Reading ahead: order, errors, deadlines, and an end that does not hang.
#include "trireme/data/read_ahead.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <numeric>
#include <thread>

#include "trireme/data/data_test_util.h"
#include "trireme/data/tokens.h"

namespace trireme {
namespace {

using namespace std::chrono_literals;

Deadline soon() { return Deadline::after(20s); }

SampleStream numbers(int64_t num_samples) {
  std::vector<int32_t> ids(static_cast<size_t>(num_samples * 2 + 1));
  std::iota(ids.begin(), ids.end(), 0);
  return {split_tokens({TokenPiece::of_ids(ids)}, 2, {}, "numbers").train, 3};
}

/// Waits for a gate at a sample, or throws there.
class Awkward : public Dataset {
 public:
  Awkward(int64_t bad, std::shared_future<void> gate = {}) : bad_(bad), gate_(std::move(gate)) {}
  int64_t size() const override { return 100; }
  SampleShape shape() const override { return SampleShape::language(1); }
  bool waits() const { return waits_; }

 protected:
  void read_sample(int64_t index, const SampleSlot& slot) const override {
    if (index == bad_ && !gate_.valid()) throw UsageError("sample 5 is broken");
    if (index == bad_) {
      waits_ = true;
      gate_.wait();
    }
    slot.input<int64_t>()[0] = index;
  }

 private:
  int64_t bad_;
  std::shared_future<void> gate_;
  mutable std::atomic<bool> waits_ = false;
};

TEST(ReadAheadTest, GivesThePlanInOrder) {
  const SampleStream stream = numbers(50);
  for (const int depth : {1, 2, 7}) {
    std::vector<BatchRange> ranges;
    for (int64_t i = 0; i < 40; ++i) ranges.push_back({i * 5 % 60, i % 4});
    ReadAhead ahead(stream, ranges, {depth});
    for (const BatchRange& range : ranges) ASSERT_EQ(ahead.next(soon()), stream.read(range.position, range.count));
    EXPECT_FALSE(ahead.next_if_any(soon()));
    expect_says(message_of([&] { ahead.next(soon()); }), {"no more batches"});
    EXPECT_GT(ahead.waited().count(), 0);
  }
}

TEST(ReadAheadTest, ReadsNoFurtherThanItsDepth) {
  std::atomic<int> asked = 0;
  ReadAhead ahead(numbers(50),
                  [&]() -> std::optional<BatchRange> {
                    ++asked;
                    return BatchRange{0, 1};
                  },
                  {3});
  for (int i = 0; i < 20; ++i) ahead.next(soon());
  EXPECT_LE(asked, 20 + 3);
}

TEST(ReadAheadTest, ErrorsComeAfterTheBatchesBeforeThem) {
  const SampleStream stream(std::make_shared<Awkward>(5), 0, SampleOrder::kAsStored);
  ReadAhead ahead(stream, {{0, 3}, {3, 2}, {5, 1}, {6, 1}}, {4});
  EXPECT_EQ(ahead.next(soon()).input<int64_t>(), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(ahead.next(soon()).input<int64_t>(), (std::vector<int64_t>{3, 4}));
  for (int i = 0; i < 3; ++i) expect_says(message_of([&] { ahead.next(soon()); }), {"sample 5 is broken"});
  ReadAhead planless(stream, []() -> std::optional<BatchRange> { throw Error("no plan"); });
  expect_says(message_of([&] { planless.next(soon()); }), {"no plan"});
  EXPECT_THROW(ReadAhead(stream, {{0, 1}}, {0}), UsageError);
}

TEST(ReadAheadTest, ADeadlineNamesWhatHangsAndLaterCallsStillWork) {
  std::promise<void> gate;
  const SampleStream stream(std::make_shared<Awkward>(7, gate.get_future().share()), 0, SampleOrder::kAsStored);
  ReadAhead ahead(stream, {{7, 1}});
  const std::string message = message_of([&] { ahead.next(Deadline::after(20ms)); });
  expect_says(message, {"not read in time", "1 samples from position 7", "data.cache"});
  EXPECT_GE(ahead.waited(), 20ms);
  gate.set_value();
  EXPECT_EQ(ahead.next(soon()).input<int64_t>(), std::vector<int64_t>{7});
}

TEST(ReadAheadTest, TheDestructorDoesNotWaitForAReadThatHangs) {
  std::promise<void> gate;
  std::weak_ptr<const Dataset> watched;
  const auto start = Clock::now();
  {
    auto data = std::make_shared<Awkward>(7, gate.get_future().share());
    watched = data;
    const SampleStream stream(data, 0, SampleOrder::kAsStored);
    ReadAhead ahead(stream, {{7, 1}}, {1, 10ms});
    EXPECT_ANY_THROW(ahead.next(Deadline::after(1ms)));
    while (!data->waits()) std::this_thread::yield();
  }
  EXPECT_LT(Clock::now() - start, 10s);
  EXPECT_FALSE(watched.expired()) << "the hanging thread keeps what it reads";
  gate.set_value();
  while (!watched.expired()) std::this_thread::yield();
}

TEST(ReadAheadTest, ComesAndGoes) {
  const SampleStream stream = numbers(50);
  for (int i = 0; i < 300; ++i) {
    ReadAhead ahead(stream, {{0, 5}, {5, 5}, {10, 5}}, {1 + i % 3});
    for (int k = 0; k < i % 3; ++k) ahead.next(soon());
  }
}

}  // namespace
}  // namespace trireme
