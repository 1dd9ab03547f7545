#include "trireme/config/config.h"

#include <gtest/gtest.h>

#include <set>

#include "trireme/config/key.h"
#include "trireme/config/value.h"

namespace trireme {
namespace {

TEST(Keys, EverySectionAndNoOther) {
  std::vector<std::string_view> met;
  for (const Key& key : keys()) {
    if (met.empty() || met.back() != key.section) met.push_back(key.section);
  }
  std::vector<std::string_view> listed;
  for (const Section& section : sections()) listed.push_back(section.name);
  EXPECT_EQ(met, listed);
}

TEST(Keys, EachHasItsOwnPlaceAndName) {
  Config config;
  std::set<const void*> places;
  std::set<std::string> names;
  for (const Key& key : keys()) {
    const auto place = [](const auto& at) -> const void* {
      if constexpr (std::is_same_v<std::decay_t<decltype(at)>, Choice>) {
        return at.value;
      } else {
        return at;
      }
    };
    places.insert(std::visit(place, key.pointer(config)));
    names.insert(key.full_name());
    EXPECT_FALSE(key.meaning.empty()) << key.full_name();
    EXPECT_EQ(&find_key(key.full_name(), "test"), &key);
  }
  EXPECT_EQ(places.size(), keys().size());
  EXPECT_EQ(names.size(), keys().size());
}

TEST(Keys, DefaultsAreAllowed) {
  for (const Key& key : keys()) {
    Config config;
    EXPECT_NO_THROW(set_value(config, key, get_value(config, key), "test")) << key.full_name();
    EXPECT_EQ(config, Config{});
  }
}

TEST(Keys, EveryNameIsReadAndWritten) {
  int choices = 0;
  for (const Key& key : keys()) {
    Config config;
    const ValuePointer pointer = key.pointer(config);
    const auto* choice = std::get_if<Choice>(&pointer);
    std::set<int> values;
    for (const std::string_view name : key.allowed.names) {
      set_value(config, key, std::string(name), "test");
      EXPECT_EQ(get_value(config, key), Value(std::string(name))) << key.full_name();
      if (choice != nullptr) values.insert(*choice->value);
    }
    if (choice == nullptr) continue;
    ++choices;
    EXPECT_GT(values.size(), 1u) << key.full_name();
    EXPECT_EQ(values.size(), key.allowed.names.size()) << key.full_name();
    EXPECT_THROW(set_value(config, key, std::string("no such name"), "test"), UsageError) << key.full_name();
  }
  EXPECT_GT(choices, 15);
}

TEST(Keys, NamesThatScriptsRelyOn) {
  for (const char* name : {"model.kind",          "model.layers",        "model.hidden",
                           "model.heads",         "model.kv_heads",      "model.ffn",
                           "model.seq",           "model.vocab",         "train.steps",
                           "train.global_batch",  "train.micro_batch",   "train.leaves",
                           "train.recompute",     "train.threads",       "train.seed",
                           "train.device",        "parallel.dp",         "parallel.tp",
                           "parallel.pp",         "parallel.cp",         "parallel.ep",
                           "parallel.zero",       "parallel.sequence",   "parallel.schedule",
                           "parallel.interleave", "parallel.plan",       "parallel.aggregation",
                           "precision.compute",   "precision.gradients", "compression.method",
                           "data.cache"}) {
    EXPECT_NO_THROW(find_key(name, "test")) << name;
  }
}

TEST(Origins, PhrasesReadInASentence) {
  Origins origins;
  EXPECT_EQ(origins.of("train.steps"), "default");
  EXPECT_EQ(origins.phrase("train.steps"), "the default");
  EXPECT_TRUE(origins.is_default("train.steps"));
  origins.set("train.steps", "command line");
  EXPECT_EQ(origins.phrase("train.steps"), "from the command line");
  EXPECT_FALSE(origins.is_default("train.steps"));
  origins.set("train.steps", "preset gpt2-124m");
  EXPECT_EQ(origins.phrase("train.steps"), "from the preset gpt2-124m");
  origins.set("train.steps", "job.toml:12");
  EXPECT_EQ(origins.phrase("train.steps"), "from job.toml:12");
  origins.set("train.steps", "derived");
  EXPECT_EQ(origins.phrase("train.steps"), "derived");
}

TEST(Origins, DoNotMakeConfigurationsDiffer) {
  Config a, b;
  b.origins.set("train.steps", "command line");
  EXPECT_EQ(a, b);
  b.train.steps = 7;
  EXPECT_NE(a, b);
}

}  // namespace
}  // namespace trireme
