// Models that are not the project's, through the trainer: an encoder-decoder of two inputs over packed documents, with
// tied weights, dropout, a norm of torch::nn and a part that is not trained. Every layout trains the same bits.
#include <gtest/gtest.h>

#include <functional>
#include <mutex>
#include <span>

#include "numerics/training.h"
#include "trireme/base/text.h"
#include "trireme/data/sample_stream.h"

namespace trireme {
namespace {

constexpr int64_t kVocab = 13, kSource = 6, kTarget = 5, kHidden = 12;

/// Source and target tokens become vectors of one table; lengths go on beside them.
struct Embed : torch::nn::Module {
  Embed() : table(register_module("table", torch::nn::Embedding(kVocab, kHidden))) {
    fixed = register_parameter("fixed", torch::randn({kHidden}), /*requires_grad=*/false);
  }
  Tensors forward(const torch::Tensor& source, const torch::Tensor& target, const torch::Tensor& length) {
    return {table(source) + fixed, table(target), length};
  }
  torch::nn::Embedding table;
  torch::Tensor fixed;
};

struct Encode : torch::nn::Module {
  Encode() : linear(register_module("linear", torch::nn::Linear(kHidden, kHidden))) {}
  Tensors forward(Tensors x) {
    x[0] = torch::tanh(linear(x[0]));
    return x;
  }
  torch::nn::Linear linear;
};

/// Attention of the target to as much of the source as is of the document.
struct Decode : torch::nn::Module {
  Decode()
      : linear(register_module("linear", torch::nn::Linear(kHidden, kHidden))),
        norm(register_module("norm", torch::nn::BatchNorm1d(kHidden))) {}
  Tensors forward(const torch::Tensor& memory, const torch::Tensor& x, const torch::Tensor& length) {
    const torch::Tensor is_padding = torch::arange(kSource).unsqueeze(0) >= length.unsqueeze(1);
    const torch::Tensor scores =
        torch::matmul(linear(x), memory.transpose(1, 2)).masked_fill(is_padding.unsqueeze(1), -1e9);
    const torch::Tensor y = x + torch::matmul(torch::softmax(scores, -1), memory);
    return {memory, norm(y.transpose(1, 2)).transpose(1, 2), length};
  }
  torch::nn::Linear linear;
  torch::nn::BatchNorm1d norm;
};

struct Head : torch::nn::Module {
  Head()
      : linear(register_module("linear", torch::nn::Linear(torch::nn::LinearOptions(kHidden, kVocab).bias(false)))) {}
  torch::Tensor forward(const Tensors& x) { return linear(x[1]); }
  torch::nn::Linear linear;
};

struct Translator : Model {
  Translator() {
    add_layer("embed", std::make_shared<Embed>());
    add_layer("encode1", std::make_shared<Encode>());
    add_layer("dropout", torch::nn::Dropout(0.2), Takes::kFirst);
    add_layer("encode2", std::make_shared<Encode>());
    add_layer("decode1", std::make_shared<Decode>());
    add_layer("decode2", std::make_shared<Decode>());
    const auto head = add_layer("head", std::make_shared<Head>());
    tie(head->linear->weight, "embed.table.weight");
  }
};

class Sentences : public Dataset {
 public:
  int64_t size() const override { return 96; }
  SampleShape shape() const override {
    const auto tokens = [](int64_t count) { return Field{Field::Type::kInt64, {count}}; };
    return {{tokens(kSource), tokens(kTarget), {Field::Type::kInt64, {}}}, {tokens(kTarget)}};
  }

 protected:
  void read_sample(int64_t index, const SampleSlot& slot) const override {
    const auto fill = [&](std::span<int64_t> tokens, int64_t factor) {
      for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = (index * 7 + static_cast<int64_t>(i) * factor) % kVocab;
    };
    fill(slot.input<int64_t>(0), 3);
    fill(slot.input<int64_t>(1), 2);
    if (const auto length = slot.input<int64_t>(2); !length.empty()) length[0] = 1 + index % kSource;
    fill(slot.target<int64_t>(), 5);
  }
};

Outcome train_translator(const Words& words, int workers, int steps = 4) {
  Words all = {"--train.global_batch=8", "--train.micro_batch=2", "--train.leaves=4",
               "--train.steps=10",       "--optimizer.lr=0.01",   "--optimizer.kind=sgd"};
  all.insert(all.end(), words.begin(), words.end());
  const Config config = resolve({.file = "", .arguments = all, .default_preset = ""});
  const OpenedData data{.train = std::make_shared<Sentences>(), .held_out = std::make_shared<Sentences>()};
  const auto make = [] {
    static std::mutex one_at_a_time;  // rank threads share the generator
    const std::lock_guard lock(one_at_a_time);
    torch::manual_seed(5);
    return std::make_shared<Translator>();
  };
  return train(config, workers, steps, /*evaluates=*/true, /*keeps_gradients=*/false, data, make);
}

TEST(OwnModels, EveryLayoutTrainsTheSameBits) {
  const Outcome alone = train_translator({}, 1);
  EXPECT_LT(alone.losses.back(), alone.losses.front());
  ASSERT_TRUE(std::isfinite(alone.evaluation.loss));
  const std::vector<std::pair<Words, int>> layouts = {
      {{"--parallel.dp=2"}, 2},
      {{"--parallel.dp=4", "--parallel.zero=3"}, 4},
      {{"--parallel.dp=2", "--parallel.zero=1"}, 2},
      {{"--parallel.dp=1", "--parallel.pp=2"}, 2},
      {{"--parallel.dp=1", "--parallel.pp=3", "--parallel.schedule=zb-h1"}, 3},
      {{"--parallel.dp=2", "--parallel.pp=2", "--parallel.zero=3"}, 4},
      {{"--parallel.dp=1", "--parallel.pp=7", "--parallel.schedule=gpipe"}, 7},
      {{"--parallel.dp=1", "--parallel.pp=2", "--parallel.interleave=2"}, 2},
      {{"--parallel.dp=1", "--train.recompute=full"}, 1},
      {{"--parallel.dp=1", "--parallel.pp=3", "--train.recompute=full"}, 3}};
  for (const auto& [words, workers] : layouts) {
    const Outcome other = train_translator(words, workers);
    const std::string layout = join(words, " ");
    expect_equal(alone, other, layout);
    EXPECT_EQ(alone.evaluation.loss, other.evaluation.loss) << layout;
  }
}

TEST(OwnModels, WhatIsNotTrainedStays) {
  const Outcome outcome = train_translator({"--parallel.dp=2"}, 2);
  torch::manual_seed(5);
  const Translator fresh;
  int compared = 0;
  for (const auto& [name, tensor] : outcome.state) {
    if (name != "embed.fixed") continue;
    EXPECT_TRUE(same_bits(tensor, fresh.named_parameters()["embed.fixed"]));
    ++compared;
  }
  EXPECT_EQ(compared, 1);
}

TEST(OwnModels, ARunningStatisticMovesOnceAStep) {
  const Outcome four = train_translator({"--train.micro_batch=2"}, 1, 1);
  for (const auto& [name, tensor] : four.state) {
    if (name == "decode1.norm.num_batches_tracked") {
      EXPECT_EQ(tensor.item<int64_t>(), 1);
    }
  }
}

TEST(OwnModels, TiedWeightsAreRefusedWhereTheirGradientsWouldNotMeet) {
  EXPECT_THROW(train_translator({"--parallel.dp=1", "--parallel.pp=2", "--parallel.schedule=pipedream"}, 2),
               UsageError);
}

/// Multiplies by numbers that are not trained.
struct Scale : torch::nn::Module {
  Scale() {
    factor = register_parameter("factor", torch::rand({kHidden}) + 1, /*requires_grad=*/false);
    shift = register_buffer("shift", torch::zeros({kHidden}));
  }
  torch::Tensor forward(const torch::Tensor& x) { return torch::tanh(x * factor); }
  torch::Tensor factor, shift;
};

struct Scaled : Model {
  explicit Scaled(std::string rule = ".*first\\.weight") : rule_(std::move(rule)) {
    add_layer("first", torch::nn::Linear(kSource, kHidden));
    add_layer("scale", std::make_shared<Scale>());
    add_layer("last", torch::nn::Linear(kHidden, kVocab));
  }
  LayoutRules tensor_parallel_rules(int) const override {
    return {{rule_, {{"tp", Placement::shard(0)}}},
            {".*first\\.bias", {{"tp", Placement::shard(0)}}},
            {".*scale\\.factor", {{"tp", Placement::shard(0)}}},
            {".*last\\.weight", {{"tp", Placement::shard(1)}}}};
  }
  std::string rule_;
};

class Points : public Dataset {
 public:
  int64_t size() const override { return 64; }
  SampleShape shape() const override {
    return {{Field{Field::Type::kFloat, {kSource}}}, {Field{Field::Type::kInt64, {}}}};
  }

 protected:
  void read_sample(int64_t index, const SampleSlot& slot) const override {
    const std::span<float> point = slot.input<float>(0);
    for (size_t i = 0; i < point.size(); ++i) point[i] = static_cast<float>((index * 7 + static_cast<int64_t>(i)) % 5);
    if (const std::span<int64_t> target = slot.target<int64_t>(); !target.empty()) target[0] = index % kVocab;
  }
};

Outcome train_scaled(const Words& words, int workers, const std::string& rule = ".*first\\.weight") {
  Words all = {"--train.global_batch=8", "--train.micro_batch=2", "--train.steps=10", "--optimizer.lr=0.01"};
  all.insert(all.end(), words.begin(), words.end());
  const Config config = resolve({.file = "", .arguments = all, .default_preset = ""});
  const OpenedData data{.train = std::make_shared<Points>(), .held_out = std::make_shared<Points>()};
  const auto make = [&rule] {
    static std::mutex one_at_a_time;  // rank threads share the generator
    const std::lock_guard lock(one_at_a_time);
    torch::manual_seed(7);
    return std::make_shared<Scaled>(rule);
  };
  return train(config, workers, 4, /*evaluates=*/true, /*keeps_gradients=*/false, data, make);
}

TEST(OwnModels, WhatIsNotTrainedKeepsItsValuesWhereItIsCut) {
  const Outcome alone = train_scaled({}, 1), cut = train_scaled({"--parallel.tp=2"}, 2);
  for (size_t step = 0; step < alone.losses.size(); ++step) {
    EXPECT_NEAR(alone.losses[step], cut.losses[step], 1e-5) << "step " << step;
  }
  EXPECT_NEAR(alone.evaluation.loss, cut.evaluation.loss, 1e-5);
}

TEST(OwnModels, ARuleThatMatchesNothingIsRefused) {
  EXPECT_THROW(train_scaled({"--parallel.tp=2"}, 2, "first\\.wieght"), UsageError);
}

TEST(OwnModels, ARuleThatMatchesABufferAloneIsRefused) {
  EXPECT_THROW(train_scaled({"--parallel.tp=2"}, 2, "scale\\.shift"), UsageError) << "the trainer cuts no buffer";
}

TEST(OwnModels, ALoopOfItsOwnTrainsAsTheTrainerDoes) {
  const Config config = resolve({.file = "",
                                 .arguments = {"--train.global_batch=8", "--train.micro_batch=2", "--train.leaves=4"},
                                 .default_preset = ""});
  const auto sentences = std::make_shared<Sentences>();
  run_as_threads(1, [&](World& world) {
    torch::manual_seed(5);
    Trainer trainer(world, std::make_shared<Translator>(), config, {.train = sentences, .held_out = nullptr});
    torch::manual_seed(5);
    Engine engine(world, std::make_shared<Translator>(), config);
    const SampleStream stream(sentences, static_cast<uint64_t>(config.train.seed), SampleOrder::kShuffled);
    for (int64_t step = 0; step < 3; ++step) {
      const Inputs batch = tensors_of(std::make_shared<Batch>(stream.read(step * 8, 8)), sentences->shape());
      EXPECT_EQ(engine.step(batch).loss, trainer.step().loss);
    }
    EXPECT_THROW(engine.step({{torch::zeros({7, 2})}, {}}), UsageError);
  });
}

template <typename Function>
std::string message_of(const Function& function) {
  try {
    function();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

/// One weight, and a loss that is to be set.
struct Small : Model {
  explicit Small(std::function<torch::Tensor(const torch::Tensor&)> loss_of = {}) : loss_of_(std::move(loss_of)) {
    add_layer("look", [this](const torch::Tensor& x) {
      saw_strides |= !x.is_contiguous();
      return x * 1;
    });
    add_layer("linear", torch::nn::Linear(kSource, 1));
  }
  torch::Tensor loss(const Tensors& outputs, const Tensors& targets) const override {
    return loss_of_ ? loss_of_(outputs[0]) : torch::mse_loss(outputs[0], targets[0]);
  }
  bool saw_strides = false;

 private:
  std::function<torch::Tensor(const torch::Tensor&)> loss_of_;
};

const Words kSmall = {"--train.global_batch=8", "--train.micro_batch=4"};

Config small_config() { return resolve({.file = "", .arguments = kSmall, .default_preset = ""}); }

TEST(OwnModels, ALossThatIsNoScalarIsRefusedInWords) {
  run_as_threads(1, [&](World& world) {
    for (const int64_t count : {1, 4}) {
      const auto rows = [&](const torch::Tensor& y) { return y.flatten().narrow(0, 0, count); };
      Engine engine(world, std::make_shared<Small>(rows), small_config());
      EXPECT_NE(message_of([&] {
                  engine.step({{torch::ones({8, kSource})}, {torch::ones({8, 1})}});
                }).find("must be a scalar"),
                std::string::npos);
    }
  });
}

/// Two layers, and a tensor that belongs to neither.
struct Loose : Model {
  explicit Loose(bool is_trained) {
    add_layer("first", torch::nn::Linear(kSource, kHidden));
    add_layer("last", torch::nn::Linear(kHidden, 1));
    if (is_trained) {
      register_parameter("loose", torch::ones({1}));
    } else {
      register_buffer("loose", torch::ones({1}));
    }
    const torch::NoGradGuard no_grad;  // equal on all ranks, whose threads share the generator
    for (torch::Tensor& parameter : parameters()) parameter.fill_(0.1);
  }
};

TEST(OwnModels, ATensorOfNoLayerIsRefused) {
  const auto refusal = [](bool is_trained, int workers) {
    std::string text;
    std::mutex mutex;
    run_as_threads(workers, [&](World& world) {
      Config config = small_config();
      config.parallel.dp = 1;
      config.parallel.pp = workers;
      const std::string own = message_of([&] { Engine engine(world, std::make_shared<Loose>(is_trained), config); });
      const std::lock_guard lock(mutex);
      text = own;
    });
    return text;
  };
  EXPECT_EQ(refusal(true, 1).find("loose belongs to no layer"), 0u) << "no rank would update it";
  EXPECT_EQ(refusal(false, 2).find("loose belongs to no layer"), 0u)
      << "both stages would save it: " << refusal(false, 2);
  EXPECT_EQ(refusal(false, 1), "no error");
}

/// Points without targets.
class Targetless : public Points {
 public:
  SampleShape shape() const override { return {Points::shape().inputs, {}}; }

 protected:
  void read_sample(int64_t, const SampleSlot&) const override {}
};

TEST(OwnModels, ASampleWithoutTargetsIsRefused) {
  run_as_threads(1, [&](World& world) {
    EXPECT_NE(message_of([&] {
                Trainer(world, std::make_shared<Small>(), small_config(), {.train = std::make_shared<Targetless>()});
              }).find("at least one target"),
              std::string::npos);
    Engine engine(world, std::make_shared<Small>(), small_config());
    EXPECT_NE(message_of([&] {
                engine.step({{torch::ones({8, kSource})}, {}});
              }).find("at least one target"),
              std::string::npos);
  });
}

TEST(OwnModels, AModelGetsContiguousInputs) {
  run_as_threads(1, [&](World& world) {
    const auto model = std::make_shared<Small>();
    Engine engine(world, model, small_config());
    const torch::Tensor turned = torch::randn({kSource, 8}).t();
    engine.step({{turned}, {torch::ones({8, 1})}});
    engine.predict(turned);
    EXPECT_FALSE(model->saw_strides);
  });
}

TEST(OwnModels, LossesAndPredictionsAreDividedByTheirOwnNumbers) {
  struct Scored : Small {
    Score score(const Tensors& outputs, const Tensors&) const override {
      const int64_t samples = outputs[0].size(0);
      return {.loss = 3.0 * static_cast<double>(samples),
              .correct = 1.0 * static_cast<double>(samples),
              .predictions = 4 * samples,
              .losses = samples};
    }
  };
  run_as_threads(1, [&](World& world) {
    const auto points = std::make_shared<Points>();
    Trainer trainer(world, std::make_shared<Scored>(), small_config(), {.train = points, .held_out = points});
    const Evaluation evaluation = trainer.evaluate(2);
    EXPECT_EQ(evaluation.loss, 3);
    EXPECT_EQ(evaluation.accuracy, 0.25);
  });
}

TEST(OwnModels, APredictionUsesTheWeightsOfTheLastStep) {
  const torch::Tensor x = torch::ones({8, kSource}), y = torch::ones({8, 1});
  const auto predict = [&](int workers, const std::string& zero) {
    Words words = kSmall;
    words.insert(words.end(), {"--parallel.zero=" + zero, "--train.leaves=2"});
    const Config config = resolve({.file = "", .arguments = words, .default_preset = ""});
    std::vector<std::shared_ptr<Model>> models;
    for (int rank = 0; rank < workers; ++rank) {
      torch::manual_seed(1);
      models.push_back(std::make_shared<Small>());
    }
    std::vector<torch::Tensor> predicted(models.size());
    run_as_threads(workers, [&](World& world) {
      const auto rank = static_cast<size_t>(world.rank());
      Engine engine(world, models[rank], config);
      engine.step({{x}, {y}});
      predicted[rank] = engine.predict(x).clone();
    });
    EXPECT_TRUE(torch::equal(predicted.front(), predicted.back()));
    return predicted[0];
  };
  const torch::Tensor alone = predict(1, "0");
  for (const char* zero : {"0", "1", "2", "3"}) EXPECT_TRUE(torch::equal(predict(2, zero), alone)) << "zero " << zero;
}

TEST(OwnModels, RanksMustBuildEqualWeights) {
  for (const Words& layout : {Words{"--parallel.dp=2"}, Words{"--parallel.dp=1", "--parallel.pp=2"}}) {
    std::vector<std::shared_ptr<Model>> models;
    for (const uint64_t seed : {1, 2}) {
      torch::manual_seed(seed);
      models.push_back(std::make_shared<Small>());
    }
    Words words = kSmall;
    words.insert(words.end(), layout.begin(), layout.end());
    const Config config = resolve({.file = "", .arguments = words, .default_preset = ""});
    run_as_threads(2, [&](World& world) {
      const std::string said =
          message_of([&] { Engine engine(world, models[static_cast<size_t>(world.rank())], config); });
      EXPECT_NE(said.find("the model of rank 1 differs from rank 0's: it has linear.weight"), std::string::npos)
          << said;
      EXPECT_NE(said.find("manual_seed"), std::string::npos) << said;
    });
  }
}

}  // namespace
}  // namespace trireme
