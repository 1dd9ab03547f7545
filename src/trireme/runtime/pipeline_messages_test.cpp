#include "trireme/runtime/pipeline_messages.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/comm/world.h"

namespace trireme {
namespace {

torch::Tensor filled(std::vector<int64_t> sizes, double value) { return torch::full(sizes, value); }

TEST(PipelineMessages, AListOfTensorsTravelsTogether) {
  run_as_threads(2, [](World& world) {
    PipelineMessages messages(world.comm(), torch::kCPU);
    const auto sent = [](int m) {
      return Tensors{filled({2, 3}, m), torch::arange(4) + m, filled({}, -m), filled({0, 5}, 0)};
    };
    for (int step = 0; step < 2; ++step) {
      for (int m = 0; m < 3; ++m) {
        if (world.rank() == 0) {
          messages.send({false, 1, m}, 1, sent(m));
        } else {
          messages.post_receive({false, 1, m}, 0);
        }
      }
      for (int m = 0; m < 3 && world.rank() == 1; ++m) {
        const Tensors got = messages.take({false, 1, m}), expected = sent(m);
        ASSERT_EQ(to_string(forms_of(got)), to_string(forms_of(expected)));
        for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(at::equal(got[i], expected[i])) << i;
      }
      messages.finish();
    }
  });
}

TEST(PipelineMessages, TooManyTensorsAreRefused) {
  const TensorForms forms(kMostTensors + 1, form_of(torch::zeros({2})));
  EXPECT_THROW(forms_to_numbers(forms), UsageError);
}

TEST(PipelineMessages, ShapesAreLearntFromTheFirstMessage) {
  run_as_threads(2, [](World& world) {
    PipelineMessages messages(world.comm(), torch::kCPU);
    const std::vector<std::vector<int64_t>> shapes{{3, 5}, {}, {2, 0, 4}, {1, 2, 1, 2, 1, 2}};
    if (world.rank() == 0) {
      for (int stage = 0; stage < 4; ++stage) {
        for (int m = 0; m < 4; ++m) {
          messages.send({false, stage, m}, 1, {filled(shapes[static_cast<size_t>(stage)], stage * 10 + m)});
        }
      }
      messages.send({false, 5, 0}, 1, {torch::ones({2, 3}, torch::kFloat64).t()});
      messages.finish();
    } else {
      for (int stage = 0; stage < 4; ++stage) {
        for (int m = 0; m < 4; ++m) messages.post_receive({false, stage, m}, 0);
      }
      for (int stage = 0; stage < 4; ++stage) {
        for (int m = 0; m < 4; ++m) {
          const torch::Tensor expected = filled(shapes[static_cast<size_t>(stage)], stage * 10 + m);
          EXPECT_TRUE(at::equal(messages.take({false, stage, m}).at(0), expected)) << stage << ' ' << m;
        }
      }
      messages.post_receive({false, 5, 0}, 0);
      EXPECT_EQ(form_of(messages.take({false, 5, 0}).at(0)).to_string(), "[3, 2] Double");
    }
  });
}

/// A gradient between two activations of other stages: whatever is used first, the rest arrives as well.
TEST(PipelineMessages, AnyOfThemMayBeUsedFirst) {
  for (const std::vector<int>& order : {std::vector{0, 1, 2}, {2, 1, 0}, {1, 2, 0}, {2, 0, 1}}) {
    run_as_threads(2, [&](World& world) {
      PipelineMessages messages(world.comm(), torch::kCPU);
      const std::vector<PipelineMessage> all{{false, 1, 0}, {true, 2, 0}, {false, 3, 0}};
      for (int step = 0; step < 3; ++step) {
        if (world.rank() == 0) {
          for (int i = 0; i < 3; ++i) messages.send(all[static_cast<size_t>(i)], 1, {filled({2, i + 1}, i + step)});
          messages.finish();
          continue;
        }
        messages.set_gradient_forms(2, {{{2, 2}, torch::kFloat32}});
        for (const PipelineMessage& message : all) messages.post_receive(message, 0);
        for (const int i : order) {
          EXPECT_TRUE(at::equal(messages.take(all[static_cast<size_t>(i)]).at(0), filled({2, i + 1}, i + step)));
        }
      }
    });
  }
}

TEST(PipelineMessages, BuffersAreUsedAgainWhenNobodyHoldsThem) {
  run_as_threads(2, [](World& world) {
    PipelineMessages messages(world.comm(), torch::kCPU);
    if (world.rank() == 0) {
      for (int m = 0; m < 20; ++m) messages.send({false, 1, m}, 1, {filled({3}, m)});
      messages.finish();
      return;
    }
    std::vector<torch::Tensor> held;
    for (int m = 0; m < 20; ++m) {
      messages.post_receive({false, 1, m}, 0);
      const torch::Tensor tensor = messages.take({false, 1, m}).at(0);
      if (m % 5 == 0) held.push_back(tensor.view({3, 1}).narrow(0, 1, 1));
    }
    EXPECT_EQ(messages.num_buffers(), 5);  // four are held
    for (size_t i = 0; i < held.size(); ++i) EXPECT_EQ(held[i].item<float>(), static_cast<float>(5 * i));
  });
}

TEST(PipelineMessages, WhatWasNotPostedCannotBeTaken) {
  run_as_threads(1, [](World& world) {
    PipelineMessages messages(world.comm(), torch::kCPU);
    EXPECT_THROW(messages.take({false, 1, 0}), Error);
  });
}

}  // namespace
}  // namespace trireme
