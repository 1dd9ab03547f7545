// Trains a small model on rank threads and keeps all that two trainings can be compared by.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "trireme/config/resolve.h"
#include "trireme/models/built_in.h"
#include "trireme/tensor/mesh_tensor.h"
#include "trireme/train/run.h"
#include "trireme/train/trainer.h"

namespace trireme {

using Words = std::vector<std::string>;

/// The presets, shrunk until a step takes milliseconds. 24 micro-batches in as many leaves: 1, 2, 3, 4, 6, 8 … workers.
inline Config config_of(const std::string& model, const Words& more = {}) {
  Words words;
  if (model == "gpt2") {
    words = {"--model=gpt2-tiny", "--model.layers=2", "--model.hidden=16", "--model.seq=12"};
  } else if (model == "llama") {
    words = {"--model=llama-tiny", "--model.layers=2", "--model.hidden=16", "--model.heads=4",
             "--model.kv_heads=2", "--model.ffn=40",   "--model.seq=12"};
  } else if (model == "mlp") {
    words = {"--model=mlp", "--model.hidden=24"};
  } else {
    words = {"--model=resnet18",   "--model.channels=1",  "--model.image=8",
             "--model.classes=10", "--optimizer.lr=0.01", "--optimizer.warmup_steps=0"};
  }
  const std::string micro = model == "resnet" ? "2" : "1";
  const Words common = {"--train.steps=10", "--train.leaves=24", "--train.micro_batch=" + micro,
                        "--train.global_batch=" + std::to_string(24 * std::stoi(micro)), "--data.generated_size=20000"};
  words.insert(words.end(), common.begin(), common.end());
  words.insert(words.end(), more.begin(), more.end());
  ConfigSources sources;
  sources.arguments = words;
  return resolve(sources);
}

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

struct Outcome {
  std::vector<double> losses, norms;
  std::vector<bool> skipped;
  NamedTensors state;
  std::vector<NamedTensors> gradients;  ///< of each step, where they were wanted
  Evaluation evaluation;
  size_t bytes_reduced = 0, bytes_gathered = 0;
  int64_t steps_skipped = 0;
  double loss_scale = 0;
};

/// The numbers as bits, NaN and the sign of zero included.
inline std::vector<uint64_t> bits_of(const std::vector<double>& values) {
  std::vector<uint64_t> bits(values.size());
  std::memcpy(bits.data(), values.data(), values.size() * sizeof(double));
  return bits;
}

inline bool same_bits(const torch::Tensor& a, const torch::Tensor& b) {
  return a.sizes() == b.sizes() && std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

/// What all ranks have: tensors that several hold are compared, and are listed by name.
inline Outcome train(const Config& config, int workers, int steps, bool evaluates, bool keeps_gradients,
                     const OpenedData& data, const std::function<std::shared_ptr<Model>()>& make_model) {
  std::vector<Outcome> outcomes(static_cast<size_t>(workers));
  run_as_threads(workers, [&](World& world) {
    Outcome& outcome = outcomes[static_cast<size_t>(world.rank())];
    Trainer trainer(world, make_model(), config, data);
    for (int step = 0; step < steps; ++step) {
      const StepReport report = trainer.step();
      outcome.losses.push_back(report.loss);
      outcome.norms.push_back(report.gradient_norm);
      outcome.skipped.push_back(report.skipped);
      if (!keeps_gradients) continue;
      outcome.gradients.emplace_back();
      for (size_t i = 0; i < trainer.part().weights().size(); ++i) {
        outcome.gradients.back().emplace_back(trainer.part().weights()[i].name, trainer.gradient(i).clone());
      }
    }
    if (evaluates) outcome.evaluation = trainer.evaluate(2);
    for (const Trainer::NamedTensor& item : trainer.state()) {
      outcome.state.emplace_back(item.name, trainer.gather(item).detach().cpu().clone());
    }
    outcome.bytes_reduced = trainer.bytes_reduced();
    outcome.bytes_gathered = trainer.bytes_gathered();
    outcome.steps_skipped = trainer.steps_skipped();
    outcome.loss_scale = nlohmann::json::parse(trainer.meta()).at("loss_scale");
  });
  std::map<std::string, torch::Tensor> state;
  for (const Outcome& other : outcomes) {
    EXPECT_EQ(bits_of(other.losses), bits_of(outcomes[0].losses));
    for (const auto& [name, tensor] : other.state) {
      const auto [first, is_new] = state.try_emplace(name, tensor);
      EXPECT_TRUE(is_new || same_bits(first->second, tensor)) << name;
    }
  }
  outcomes[0].state.assign(state.begin(), state.end());
  return std::move(outcomes[0]);
}

inline Outcome train(const Config& config, int workers, int steps = 3, bool evaluates = false,
                     bool keeps_gradients = false) {
  return train(config, workers, steps, evaluates, keeps_gradients, open_data(data_options_of(config)),
               [&] { return build_model(config); });
}

inline void expect_equal(const Outcome& a, const Outcome& b, const std::string& what) {
  EXPECT_EQ(bits_of(a.losses), bits_of(b.losses)) << what << ": " << a.losses.back() << " and " << b.losses.back();
  EXPECT_EQ(bits_of(a.norms), bits_of(b.norms)) << what;
  ASSERT_EQ(a.state.size(), b.state.size()) << what;
  int reported = 0;
  for (size_t i = 0; i < a.state.size() && reported < 3; ++i) {
    const bool same = same_bits(a.state[i].second, b.state[i].second);
    EXPECT_TRUE(same) << what << ": " << a.state[i].first;
    reported += !same;
  }
}

/// How far the loss falls, as a part of the first one: 0 for weights that never move.
inline double fall_of(const Outcome& outcome) {
  const std::vector<double>& losses = outcome.losses;
  return 1 - (losses.end()[-1] + losses.end()[-2]) / 2 / losses.front();
}

/// The largest difference of two weights, by the largest weight of that tensor.
inline double largest_difference(const Outcome& a, const Outcome& b) {
  double largest = 0;
  for (size_t i = 0; i < a.state.size(); ++i) {
    const torch::Tensor x = a.state[i].second.to(torch::kFloat64), y = b.state[i].second.to(torch::kFloat64);
    const double scale = std::max(1e-6, x.abs().max().item<double>());
    largest = std::max(largest, (x - y).abs().max().item<double>() / scale);
  }
  return largest;
}

/// The largest difference of two gradients, in units in the last place of the largest element of that tensor of `a`.
inline double ulps_apart(const NamedTensors& a, const NamedTensors& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const torch::Tensor x = a[i].second.to(torch::kFloat64), y = b[i].second.to(torch::kFloat64);
    const double most = x.abs().max().item<double>(), difference = (x - y).abs().max().item<double>();
    if (difference == 0) continue;
    largest = std::max(largest, difference / std::ldexp(1.0, std::ilogb(most) - 23));
  }
  return largest;
}

}  // namespace trireme
