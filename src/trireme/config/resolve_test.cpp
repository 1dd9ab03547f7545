#include "trireme/config/resolve.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "trireme/base/error.h"
#include "trireme/base/philox.h"
#include "trireme/config/check.h"
#include "trireme/config/key.h"
#include "trireme/config/presets.h"
#include "trireme/config/value.h"

namespace trireme {
namespace {

using Arguments = std::vector<std::string>;

Config from_arguments(Arguments arguments) {
  ConfigSources sources;
  sources.arguments = std::move(arguments);
  return resolve(sources);
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

std::string words_of_error(Arguments arguments) {
  return message_of([&] { from_arguments(arguments); });
}

std::string error_of_text(const std::string& toml) {
  return message_of([&] { resolve_text(toml, "job.toml"); });
}

TEST(Resolve, APresetsTargetIsForItsOwnTask) {
  EXPECT_GT(from_arguments({}).train.target_loss, 0);
  const Config other = from_arguments({"--data.path=my.txt"});
  EXPECT_EQ(other.train.target_loss, 0);
  EXPECT_EQ(other.origins.of("train.target_loss"), "derived");
  EXPECT_EQ(from_arguments({"--data.path=my.txt", "--train.target_loss=0.5"}).train.target_loss, 0.5);
  for (const char* change : {"--train.steps=150", "--train.steps=1200", "--model.layers=2", "--train.global_batch=8",
                             "--data.generated_size=1000000"}) {
    EXPECT_EQ(from_arguments({change}).train.target_loss, 0) << change;
  }
  for (const char* same : {"--train.steps=600", "--train.micro_batch=8", "--parallel.dp=2", "--optimizer.lr=1e-3",
                           "--data.cache=memory", "--train.seed=2"}) {
    EXPECT_GT(from_arguments({same}).train.target_loss, 0) << same;
  }
}

TEST(Resolve, LayersGoOverOneAnother) {
  const std::string text =
      "[model]\npreset = \"gpt2-124m\"\nlayers = 6\n[train]\nsteps = 50\nglobal_batch = 8\n[optimizer]\nlr = 1e-4\n";
  const Config config = resolve_text(text, "job.toml", {"--train.steps=7", "--optimizer.schedule", "linear"});
  EXPECT_EQ(config.model.hidden, 768);
  EXPECT_EQ(config.model.layers, 6);
  EXPECT_EQ(config.train.steps, 7);
  EXPECT_EQ(config.train.global_batch, 8);
  EXPECT_EQ(config.optimizer.lr, 1e-4);
  EXPECT_EQ(config.optimizer.schedule, LrSchedule::kLinear);
  EXPECT_EQ(config.origins.of("model.hidden"), "preset gpt2-124m");
  EXPECT_EQ(config.origins.of("model.layers"), "job.toml:3");
  EXPECT_EQ(config.origins.of("train.global_batch"), "job.toml:6");
  EXPECT_EQ(config.origins.of("train.steps"), "command line");
  EXPECT_EQ(config.origins.of("train.seed"), "default");
  EXPECT_EQ(config.origins.of("model.ffn"), "derived");
  EXPECT_EQ(config.observe.name, "job");
}

TEST(Resolve, NumberTypesHaveTheirShortNamesToo) {
  EXPECT_EQ(from_arguments({"--precision.compute=bf16"}).precision.compute, NumberType::kBfloat16);
  EXPECT_EQ(from_arguments({"--model.kind=gpt"}).model.kind, ModelKind::kGpt2);
  EXPECT_EQ(from_arguments({"--precision.compute=fp16"}).precision.compute, NumberType::kFloat16);
  EXPECT_EQ(resolve_text("[precision]\ncompute = \"fp32\"\n", "job.toml").precision.compute, NumberType::kFloat32);
  EXPECT_EQ(from_arguments({"--precision.gradients=fp32"}).precision.gradients, GradientType::kFloat32);
  EXPECT_NE(to_toml(from_arguments({"--precision.compute=bf16"})).find("compute = \"bfloat16\""), std::string::npos);
  EXPECT_NE(words_of_error({"--precision.gradients=bf16"}), "no error") << "there is no such value to stand for";
}

// Runs of before kept a switch of two positions, which a file may have as TOML's true and false.
TEST(Resolve, ASwitchMayHaveAThirdPosition) {
  EXPECT_EQ(from_arguments({}).parallel.overlap, Overlap::kAuto);
  EXPECT_EQ(from_arguments({"--parallel.overlap"}).parallel.overlap, Overlap::kOn);
  EXPECT_EQ(from_arguments({"--parallel.overlap", "--parallel.dp=2"}).parallel.overlap, Overlap::kOn);
  EXPECT_EQ(from_arguments({"--parallel.overlap", "false"}).parallel.overlap, Overlap::kOff);
  EXPECT_EQ(from_arguments({"--parallel.overlap=auto"}).parallel.overlap, Overlap::kAuto);
  EXPECT_EQ(resolve_text("[parallel]\noverlap = true\n", "job.toml").parallel.overlap, Overlap::kOn);
  EXPECT_EQ(resolve_text("[parallel]\noverlap = false\n", "job.toml").parallel.overlap, Overlap::kOff);
  EXPECT_EQ(resolve_text("[parallel]\noverlap = \"off\"\n", "job.toml").parallel.overlap, Overlap::kOff);
  EXPECT_NE(words_of_error({"--parallel.overlap=yes"}).find("one of auto, on, off"), std::string::npos);
  EXPECT_THROW(resolve_text("[compression]\nerror_feedback = true\n", "job.toml"), UsageError) << "has no such names";
}

TEST(Resolve, CommandLineChoosesThePresetOfAFile) {
  const Config config = resolve_text("[model]\npreset = \"gpt2-124m\"\n", "job.toml", {"--model", "gpt2-tiny"});
  EXPECT_EQ(config.model.preset, "gpt2-tiny");
  EXPECT_EQ(config.model.hidden, 64);
  EXPECT_EQ(config.origins.of("model.preset"), "command line");
}

TEST(Resolve, WithoutAFileTheDefaultJobRuns) {
  const Config config = from_arguments({});
  EXPECT_EQ(config.model.preset, "default");
  EXPECT_EQ(config.observe.name, "default");
  EXPECT_EQ(config.origins.of("train.steps"), "preset default");
  EXPECT_NO_THROW(check(config, 1));
  EXPECT_NO_THROW(check(config, 2));
  // With a file only what the file says.
  EXPECT_EQ(resolve_text("", "empty.toml").model.preset, "");
  EXPECT_EQ(resolve_text("", "empty.toml").train, TrainConfig{});
}

TEST(Resolve, FollowsFromOthersUnlessSet) {
  const Config gpt = from_arguments({"--model.hidden=256", "--model.heads=8"});
  EXPECT_EQ(gpt.model.ffn, 1024);
  EXPECT_EQ(gpt.model.kv_heads, 8);
  EXPECT_TRUE(gpt.model.tied);
  const Config llama = resolve_text("[model]\nkind = \"llama\"\nhidden = 4096\nheads = 32\nkv_heads = 0\n", "l.toml");
  EXPECT_EQ(llama.model.ffn, 11008);
  EXPECT_EQ(llama.model.kv_heads, 32);
  EXPECT_FALSE(llama.model.tied);
  EXPECT_EQ(llama.origins.of("model.kv_heads"), "derived");
  const Config set = resolve_text("[model]\nkind = \"llama\"\ntied = true\nffn = 100\nkv_heads = 2\n", "l.toml");
  EXPECT_EQ(set.model.ffn, 100);
  EXPECT_EQ(set.model.kv_heads, 2);
  EXPECT_TRUE(set.model.tied);
}

TEST(Resolve, WaysToWriteAValue) {
  EXPECT_EQ(from_arguments({"--train.steps=1,500"}).train.steps, 1500);
  EXPECT_EQ(from_arguments({"--train.steps", "1_500"}).train.steps, 1500);
  EXPECT_EQ(from_arguments({"--train.steps=1e3"}).train.steps, 1000);
  EXPECT_EQ(from_arguments({"--train.steps=1", "--train.steps=2"}).train.steps, 2);
  EXPECT_EQ(from_arguments({"--parallel.dp", "-1"}).parallel.dp, -1);
  EXPECT_EQ(from_arguments({"--optimizer.lr=1"}).optimizer.lr, 1);
  EXPECT_TRUE(from_arguments({"--optimizer.nesterov"}).optimizer.nesterov);
  EXPECT_TRUE(from_arguments({"--optimizer.nesterov", "--train.seed=2"}).optimizer.nesterov);
  EXPECT_FALSE(from_arguments({"--observe.report", "false"}).observe.report);
  EXPECT_EQ(from_arguments({"--data.path=a=b"}).data.path, "a=b");
  EXPECT_EQ(from_arguments({"--data.path="}).data.path, "");
  EXPECT_EQ(from_arguments({"--model.kind=llama"}).model.kind, ModelKind::kLlama);
  EXPECT_EQ(resolve_text("[train]\nsteps = 1e3\n[optimizer]\nlr = 1\n", "f").train.steps, 1000);
  EXPECT_EQ(resolve_text("train.steps = 3", "f").train.steps, 3);
}

TEST(Resolve, WrongKeys) {
  EXPECT_EQ(words_of_error({"--train.step=3"}), "unknown key train.step (command line)\n  did you mean train.steps?");
  EXPECT_EQ(words_of_error({"--train.lr=3"}), "unknown key train.lr (command line)\n  did you mean optimizer.lr?");
  EXPECT_EQ(words_of_error({"--run.name=mine"}),
            "unknown key run.name (command line)\n  did you mean observe.name? It is: name of the run; empty: that of "
            "the file or preset");
  EXPECT_EQ(words_of_error({"--steps", "3"}), "unknown key steps (command line)\n  did you mean train.steps?");
  EXPECT_EQ(words_of_error({"--xyzzy.qwertyuiop=3"}),
            "unknown key xyzzy.qwertyuiop (command line)\n  all keys: trireme train --show-config");
  EXPECT_EQ(error_of_text("[train]\n\n  setps = 3\n"),
            "unknown key train.setps (job.toml:3:3)\n  did you mean train.steps?");
  EXPECT_EQ(error_of_text("[trian]\nsteps = 3\n"),
            "unknown key trian.steps (job.toml:2:1)\n  did you mean train.steps?");
  EXPECT_EQ(words_of_error({"steps"}),
            "\"steps\" is not expected here\n  values follow their key: --section.key=value or --section.key value");
  EXPECT_EQ(words_of_error({"--train.steps"}),
            "--train.steps has no value: a whole number from 1 to 1,000,000,000 is expected");
  EXPECT_EQ(error_of_text("model = \"gpt2-124m\""),
            "model (job.toml:1:1) is a section, not a key\n  did you mean model.preset or model.kind?");
  EXPECT_EQ(error_of_text("[[train]]\nsteps = 1"),
            "train (job.toml:1:3) is a section, not a key\n  write [train], then its keys below");
}

TEST(Resolve, WrongValues) {
  EXPECT_EQ(words_of_error({"--train.steps=many"}),
            "train.steps = many (command line) must be a whole number from 1 to 1,000,000,000");
  EXPECT_EQ(words_of_error({"--train.global_batch=1e9"}),
            "train.global_batch = 1000000000.0 (command line) must be a whole number from 1 to 1,000,000");
  EXPECT_EQ(error_of_text("[train]\nsteps = \"10\"\n"),
            "train.steps = \"10\" (job.toml:2:1) must be a whole number from 1 to 1,000,000,000");
  EXPECT_EQ(error_of_text("[train]\nsteps = 1.5\n"),
            "train.steps = 1.5 (job.toml:2:1) must be a whole number from 1 to 1,000,000,000");
  EXPECT_EQ(error_of_text("[data]\nheld_out = 0.7\n"),
            "data.held_out = 0.7 (job.toml:2:1) must be a number from 0 to 0.5");
  EXPECT_EQ(error_of_text("[data]\npath = 3\n"), "data.path = 3 (job.toml:2:1) must be a text");
  EXPECT_EQ(error_of_text("[train]\nsteps = [1]\n"),
            "train.steps (job.toml:2:1) is a list, but must be a whole number from 1 to 1,000,000,000");
  EXPECT_EQ(error_of_text("[train.steps]\n"),
            "train.steps (job.toml:1:8) is a table, but must be a whole number from 1 to 1,000,000,000");
  EXPECT_EQ(error_of_text("[train]\nsteps = 2020-01-01\n"),
            "train.steps (job.toml:2:1) is a date or time, but must be a whole number from 1 to 1,000,000,000");
  EXPECT_EQ(words_of_error({"--optimizer.kind=adamv"}),
            "optimizer.kind = \"adamv\" (command line) must be one of adamw, adam, sgd\n  did you mean \"adamw\"?");
  EXPECT_EQ(words_of_error({"--checkpoint.async=maybe"}),
            "checkpoint.async = maybe (command line) must be true or false");
  EXPECT_EQ(error_of_text("[checkpoint]\nasync = 1\n"), "checkpoint.async = 1 (job.toml:2:1) must be true or false");
  EXPECT_EQ(words_of_error({"--model=gpt2-124"}),
            "model.preset (command line): there is no preset \"gpt2-124\"\n  did you mean gpt2-124m?");
  EXPECT_EQ(error_of_text("[model]\npreset = \"lama-8b\"\n"),
            "model.preset (job.toml:2): there is no preset \"lama-8b\"\n  did you mean llama-8b?");
  for (const char* number : {"nan", "inf", "-inf", "1e400", "", "0x10", "2,4", "--", "9223372036854775808"}) {
    EXPECT_NE(words_of_error({std::string("--optimizer.lr=") + number}), "no error") << number;
    EXPECT_NE(words_of_error({std::string("--train.steps=") + number}), "no error") << number;
  }
  EXPECT_NE(error_of_text("[optimizer]\nlr = nan\n"), "no error");
  EXPECT_NE(error_of_text("[train]\nseed = 9007199254740993\n"), "no error");
  EXPECT_EQ(words_of_error({"--data.path=\xff"}), "data.path = \"?\" (command line) must be UTF-8 without zero bytes");
}

TEST(Resolve, ReadsFiles) {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / ("trireme_config_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const std::string path = folder / "my job.toml";
  std::ofstream(path) << "[train]\nsteps = 12\n";
  ConfigSources sources;
  sources.file = path;
  const Config config = resolve(sources);
  EXPECT_EQ(config.train.steps, 12);
  EXPECT_EQ(config.observe.name, "my job");
  EXPECT_EQ(config.model.preset, "");
  EXPECT_EQ(from_arguments({"--model", path}), config);
  sources.arguments = {"--model", path};
  EXPECT_NE(message_of([&] { resolve(sources); }).find("two configurations are given"), std::string::npos);

  std::ofstream(path, std::ios::app) << std::string(size_t{1} << 20, '#');
  EXPECT_NE(words_of_error({"--model", path}).find("is larger than 1 MiB"), std::string::npos);
  try {
    from_arguments({"--model", folder / "none.toml"});
    ADD_FAILURE() << "a file that does not exist was read";
  } catch (const SystemError& error) {
    EXPECT_NE(std::string(error.what()).find("none.toml"), std::string::npos);
  }
  EXPECT_THROW(from_arguments({"--model=/dev/null/x.toml"}), SystemError);
  sources = {};
  sources.file = folder;
  EXPECT_THROW(resolve(sources), SystemError);
  sources.file = "/dev/zero";
  EXPECT_THROW(resolve(sources), UsageError);
  std::filesystem::remove_all(folder);
}

TEST(Presets, AllResolveAndCheck) {
  for (const Preset& preset : list_presets()) {
    const Config config = from_arguments({"--model", std::string(preset.name)});
    EXPECT_EQ(config.model.preset, preset.name);
    EXPECT_NO_THROW(check(config, 1)) << preset.name;
    EXPECT_NO_THROW(check(config, 2)) << preset.name;
    EXPECT_FALSE(preset.description.empty());
    EXPECT_EQ(preset.toml.find("preset"), std::string_view::npos) << preset.name;
  }
}

TEST(Presets, TheDefaultJobHasAboutAMillionParameters) {
  const int64_t parameters = count_parameters(from_arguments({}).model);
  EXPECT_GT(parameters, 500'000);
  EXPECT_LT(parameters, 2'000'000);
}

TEST(ToToml, ShowsOrigins) {
  const std::string text = to_toml(from_arguments({"--train.steps=7"}));
  EXPECT_NE(text.find("steps = 7                             # command line\n"), std::string::npos) << text;
  EXPECT_NE(text.find("kind = \"gpt2\"                         # preset default\n"), std::string::npos) << text;
  EXPECT_NE(text.find("zero = 0                              # default\n"), std::string::npos) << text;
}

TEST(ToToml, ReadsBackEqual) {
  for (const Preset& preset : list_presets()) {
    const Config config = from_arguments({"--model", std::string(preset.name)});
    EXPECT_EQ(resolve_text(to_toml(config), "back.toml"), config) << preset.name;
  }
}

/// A value that the key allows, drawn from its whole range.
Value random_value(const Key& key, const Philox& random, uint64_t element) {
  const double u = random.uniform(element);
  if (!key.allowed.names.empty())
    return std::string(key.allowed.names[random.below(key.allowed.names.size(), element)]);
  const Allowed& allowed = key.allowed;
  if (key.type_name() == "switch") return u < 0.5;
  if (key.type_name() == "number") return allowed.least + u * (allowed.most - allowed.least);
  if (key.type_name() == "whole number") return std::floor(allowed.least + u * (allowed.most - allowed.least));
  static const std::vector<std::string> kTexts = {"",       "a b", "\"",  "\\",       "#",
                                                  "\n\r\t", "'''", "é…😀", "\x01\x7f", "a\\u0041"};
  return kTexts[random.below(kTexts.size(), element)];
}

TEST(ToToml, ReadsBackEqualWithAnyValues) {
  for (uint64_t round = 0; round < 200; ++round) {
    const Philox random(7, "config", round);
    Config config = resolve_text("", "start.toml");
    uint64_t element = 0;
    for (const Key& key : keys()) {
      if (key.full_name() == "model.preset" || key.full_name() == "model.library") continue;  // they must exist
      set_value(config, key, random_value(key, random, element++), "test");
    }
    // As resolve() leaves them: never open.
    config.model.kv_heads = std::max<int64_t>(config.model.kv_heads, 1);
    config.model.ffn = std::max<int64_t>(config.model.ffn, 1);
    if (config.observe.name.empty()) config.observe.name = "x";
    config.origins.set("train.steps", "odd\nname \xff.toml:1");
    ASSERT_EQ(resolve_text(to_toml(config), "back.toml"), config) << to_toml(config);
  }
}

/// A library that is never opened: the answer next to it is already there.
class FakeLibrary {
 public:
  explicit FakeLibrary(const std::vector<LibraryModelKeys>& models) {
    std::ofstream(path()) << "no library";
    struct stat status {};
    ::stat(path().c_str(), &status);
    const std::string version =
        fmt::format("{} bytes, {}.{:09}", status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
    std::ofstream(path() + ".json")
        << Json{{"library", version}, {"for", library_stamp()}, {"models", Json::parse(describe(models))}}.dump();
  }
  ~FakeLibrary() {
    std::filesystem::remove(path());
    std::filesystem::remove(path() + ".json");
  }
  std::string path() const { return fmt::format("/tmp/trireme-resolve-{}.so", ::getpid()); }
  std::string words_of_error(const std::string& kind, Arguments more = {}) const {
    more.insert(more.begin(), {"--model.library=" + path(), "--model.kind=" + kind});
    return trireme::words_of_error(more);
  }
};

const std::vector<LibraryModelKeys> kOwnModels = {
    {"mine", "its own data", SampleKind::kOwn, {{"width", int64_t{8}, "width"}, {"dropout", 0.1, "share"}}},
    {"sees", "images", SampleKind::kImages},
    {"reads", "tokens", SampleKind::kTokens}};

TEST(OwnKeys, BuiltInKeysThatDoNotCountAreRefused) {
  const FakeLibrary library(kOwnModels);
  EXPECT_EQ(library.words_of_error("mine", {"--model.dropout=0.5"}),
            "model.dropout = 0.5 (from the command line) has no effect on model.kind = mine\n"
            "  did you mean model.mine.dropout?");
  EXPECT_NE(library.words_of_error("mine", {"--model.hidden=8"}).find("has no effect on model.kind = mine"),
            std::string::npos);
  for (const char* key : {"sync_statistics=true", "seq=7", "vocab=9", "image=9", "classes=9", "ffn=5", "tied=false"}) {
    EXPECT_NE(library.words_of_error("mine", {std::string("--model.") + key}).find("has no effect"), std::string::npos)
        << key;
  }
  EXPECT_EQ(library.words_of_error("mine", {"--model.mine.dropout=0.5", "--model.mine.width=3"}), "no error");
  for (const char* key : {"image=9", "classes=9", "channels=2"}) {
    EXPECT_EQ(library.words_of_error("sees", {std::string("--model.") + key}), "no error") << key;
  }
  EXPECT_NE(library.words_of_error("sees", {"--model.seq=9"}).find("has no effect"), std::string::npos);
  for (const char* key : {"seq=9", "vocab=9"}) {
    EXPECT_EQ(library.words_of_error("reads", {std::string("--model.") + key}), "no error") << key;
  }
  EXPECT_NE(library.words_of_error("reads", {"--model.image=9"}).find("has no effect"), std::string::npos);
  EXPECT_EQ(library.words_of_error("mine", {"--model.preset=gpt2-tiny"}), "no error")
      << "what a preset sets is not asked for";
  EXPECT_EQ(words_of_error({"--model.kind=own", "--model.hidden=8"}), "no error") << "a program may read it";
}

TEST(OwnKeys, ASavedConfigReadsBack) {
  const FakeLibrary library(kOwnModels);
  for (const char* preset : {"", "gpt2-tiny", "resnet18"}) {
    Arguments words = {"--model.library=" + library.path(), "--model.kind=mine", "--model.mine.width=3"};
    if (*preset) words.push_back(std::string("--model.preset=") + preset);
    const Config config = from_arguments(words);
    EXPECT_EQ(resolve_text(to_toml(config), "back.toml"), config) << preset;
  }
}

TEST(OwnKeys, ReadingAValueChangesNothing) {
  const FakeLibrary library(kOwnModels);
  const KeyTable& table = key_table(library.path());
  const Config config;
  EXPECT_EQ(get_value(config, table.find("model.mine.width", "test")), Value(int64_t{8})) << "the default";
  EXPECT_TRUE(config.model.own_values.empty());
  EXPECT_EQ(table.find("model.mine.dropout", "test").type_name(), "number");
  EXPECT_EQ(from_arguments({"--model.library=" + library.path(), "--model.kind=mine"}).model.own_values.size(), 2u);
}

}  // namespace
}  // namespace trireme
