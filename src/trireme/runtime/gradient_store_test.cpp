#include "trireme/runtime/gradient_store.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/comm/world.h"

namespace trireme {
namespace {

torch::Tensor leaf(at::IntArrayRef shape, float value = 1) { return torch::full(shape, value).set_requires_grad(true); }

/// Three parameters, a group each.
struct Fixture {
  torch::Tensor a = leaf({3}), b = leaf({2, 5}), c = leaf({17});
  GradientStoreOptions options{.num_slots = 2, .bucket_bytes = 1, .first_bucket_bytes = 1};
  std::vector<GradientSource> sources{{"a", a}, {"b", b}, {"c", c}};
};

TEST(GradientStore, FillsSlotsAndTakesGradientsAway) {
  Fixture f;
  GradientStore store(nullptr, f.sources, f.options);
  store.begin(1, false);
  (2 * f.a.sum() + 3 * f.b.sum() + 4 * f.c.sum()).backward();
  store.end();
  EXPECT_TRUE(torch::equal(store.gradient(1, 0), torch::full({3}, 2.0f)));
  EXPECT_TRUE(torch::equal(store.gradient(1, 1), torch::full({2, 5}, 3.0f)));
  EXPECT_TRUE(torch::equal(store.gradient(1, 2), torch::full({17}, 4.0f)));
  EXPECT_EQ(store.group(0, 0).abs().sum().item<float>(), 0) << "the other slot is untouched";
  EXPECT_FALSE(f.a.grad().defined());
  store.add_slot(0, 0, 1);
  EXPECT_TRUE(torch::equal(store.gradient(0, 2), torch::full({17}, 4.0f)));
  EXPECT_TRUE(torch::equal(store.gradient(0, 0), torch::zeros({3}))) << "another group";
}

TEST(GradientStore, ClosesGroupsAtTheirBytes) {
  std::vector<GradientSource> sources;
  for (int i = 0; i < 9; ++i) sources.push_back({fmt::format("w{}", i), leaf({256})});
  const auto groups_of = [&](torch::ScalarType type) {
    return GradientStore(nullptr, sources, {.bucket_bytes = 2048, .first_bucket_bytes = 1024, .type = type})
        .num_groups();
  };
  EXPECT_EQ(groups_of(torch::kFloat32), 5);   // one tensor of 1,024 bytes, then two at a time
  EXPECT_EQ(groups_of(torch::kBFloat16), 3);  // two of 512, then four at a time
}

TEST(GradientStore, SetsOrAdds) {
  Fixture f;
  GradientStore store(nullptr, f.sources, f.options);
  for (const bool add : {false, true, false, true, true}) {
    const torch::Tensor before = store.gradient(0, 1).clone();
    store.begin(0, add);
    (5 * f.b.sum()).backward();
    store.end();
    EXPECT_TRUE(torch::equal(store.gradient(0, 1), (add ? before : torch::zeros({2, 5})) + 5));
  }
  store.begin(0, false);
  (5 * f.b.sum()).backward();
  (2 * f.b.sum()).backward();  // two passes, one filling
  store.end();
  EXPECT_TRUE(torch::equal(store.gradient(0, 1), torch::full({2, 5}, 7.0f)));
}

TEST(GradientStore, UnusedParametersCountAsZero) {
  Fixture f;
  GradientStore store(nullptr, f.sources, f.options);
  store.group(0, store.group_of(0)).fill_(99);
  store.begin(0, false);
  f.b.sum().backward();
  store.end();
  EXPECT_EQ(store.gradient(0, 0).abs().sum().item<float>(), 0);
  store.gradient(0, 0).fill_(99);
  store.begin(0, true);
  f.b.sum().backward();
  store.end();
  EXPECT_EQ(store.gradient(0, 0).sum().item<float>(), 3 * 99) << "adding nothing leaves what was there";
}

TEST(GradientStore, GroupsAreReadyInOneOrderWhateverArrivesFirst) {
  for (const bool reversed : {false, true}) {
    Fixture f;
    GradientStore store(nullptr, f.sources, f.options);
    ASSERT_EQ(store.num_groups(), 3);
    EXPECT_EQ(store.group_of(2), 0) << "the backward pass begins with the last";
    std::vector<int> ready;
    store.begin(0, false, [&](int group) { ready.push_back(group); });
    const torch::Tensor& first = reversed ? f.a : f.c;
    const torch::Tensor& last = reversed ? f.c : f.a;
    first.sum().backward();
    EXPECT_EQ(ready, reversed ? std::vector<int>{} : std::vector<int>{0});
    last.sum().backward();
    EXPECT_EQ(ready, std::vector<int>{0}) << "b is missing, and a waits for it";
    store.end();
    EXPECT_EQ(ready, (std::vector<int>{0, 1, 2}));
  }
}

TEST(GradientStore, ReadyComesDuringTheBackwardPass) {
  Fixture f;
  GradientStore store(nullptr, f.sources, f.options);
  bool is_over = false;
  int num_early = 0;
  store.begin(0, false, [&](int) { num_early += is_over ? 0 : 1; });
  (f.a.sum() + f.b.sum() + f.c.sum()).backward();
  is_over = true;
  store.end();
  EXPECT_EQ(num_early, 3);
}

TEST(GradientStore, GradientsGivenOutAsViewsAreAddedToWhereTheyLie) {
  for (const bool add : {false, true}) {
    Fixture f;
    GradientStore store(nullptr, f.sources, f.options);
    store.begin(0, add);
    f.a.mutable_grad() = store.gradient(0, 0).fill_(10);
    (2 * f.a.sum()).backward();
    store.end();
    EXPECT_TRUE(torch::equal(store.gradient(0, 0), torch::full({3}, 12.0f))) << "add " << add;
  }
}

TEST(GradientStore, HooksAreOffAfterwards) {
  Fixture f;
  {
    GradientStore store(nullptr, f.sources, f.options);
    f.a.sum().backward();
    EXPECT_TRUE(f.a.grad().defined()) << "before begin() gradients are autograd's";
    f.a.mutable_grad().reset();
    store.begin(0, false);
  }
  f.a.sum().backward();
  EXPECT_TRUE(torch::equal(f.a.grad(), torch::ones({3})));
  const GradientStore again(nullptr, f.sources, f.options);
  EXPECT_THROW(GradientStore(nullptr, f.sources, f.options), UsageError) << "would take the gradients from the first";
}

TEST(GradientStore, LaysOutAlignedGroupsThatCoverEverySource) {
  for (const auto type : {torch::kFloat32, torch::kBFloat16, torch::kFloat64}) {
    for (const int64_t bucket_bytes : {1, 64, 100, 1000, 4000, 1 << 20}) {
      std::vector<GradientSource> sources;
      for (int64_t i = 0; i < 40; ++i) sources.push_back({fmt::format("p{}", i), leaf({i * 7 % 31, 2})});
      const GradientStoreOptions options{
          .bucket_bytes = bucket_bytes, .first_bucket_bytes = bucket_bytes / 2, .type = type};
      run_as_threads(1, [&](World& world) {
        const GradientStore store(&world.comm(), sources, options);
        int64_t total = 0;
        for (int group = 0; group < store.num_groups(); ++group) total += store.group(0, group).numel();
        EXPECT_EQ(total, store.size());
        EXPECT_EQ(store.num_bytes(), static_cast<size_t>(total) * c10::elementSize(type));
        for (size_t i = 0; i < sources.size(); ++i) {
          const torch::Tensor gradient = store.gradient(0, i);
          const torch::Tensor group = store.group(0, store.group_of(i));
          EXPECT_EQ(reinterpret_cast<uintptr_t>(gradient.data_ptr()) % 64, 0u);
          EXPECT_GE(gradient.storage_offset(), group.storage_offset());
          EXPECT_LE(gradient.storage_offset() + gradient.numel(), group.storage_offset() + group.numel());
          if (i > 0) {
            EXPECT_LE(store.group_of(i), store.group_of(i - 1)) << "last parameters first";
          }
        }
      });
    }
  }
}

TEST(GradientStore, RefusesWhatHasNoGradient) {
  const torch::Tensor parameter = leaf({2});
  EXPECT_THROW(GradientStore(nullptr, {{"x", torch::zeros({2})}}, {}), UsageError);
  EXPECT_THROW(GradientStore(nullptr, {{"x", parameter * 2}}, {}), UsageError);
}

}  // namespace
}  // namespace trireme
