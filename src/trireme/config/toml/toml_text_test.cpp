#include "trireme/config/toml/toml_text.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/base/philox.h"
#include "trireme/config/check.h"
#include "trireme/config/presets.h"
#include "trireme/config/resolve.h"

namespace trireme {
namespace {

std::string error_of(const std::string& text) {
  try {
    resolve_text(text, "job.toml");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

/// Resolved, checked and written, or refused with UsageError; anything else ends the test.
bool survives(const std::string& text) {
  try {
    const Config config = resolve_text(text, "fuzz.toml");
    const std::string written = to_toml(config);
    EXPECT_EQ(resolve_text(written, "back.toml"), config) << written;
    check(config, 2);
    return true;
  } catch (const UsageError& error) {
    EXPECT_TRUE(is_utf8(error.what())) << error.what();
    EXPECT_LT(std::string(error.what()).size(), 1000u);
    return false;
  }
}

std::string repeat(std::string_view part, size_t times) {
  std::string text;
  for (size_t i = 0; i < times; ++i) text += part;
  return text;
}

TEST(ReadToml, GivesAssignmentsInOrder) {
  const auto all = read_toml("[train]\nsteps = 3\nclip = 0.5\n[data]\npath = \"x\"\nkind = [1]\n", "f");
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[0].key, "train.steps");
  EXPECT_EQ(all[0].value, Value(int64_t{3}));
  EXPECT_EQ(all[1].key, "train.clip");
  EXPECT_EQ(all[1].line, 3);
  EXPECT_EQ(all[1].column, 1);
  EXPECT_EQ(all[2].value, Value(std::string("x")));
  EXPECT_FALSE(all[3].value);
  EXPECT_EQ(all[3].shown, "a list");
}

TEST(ReadToml, AModelOfALibraryHasASectionOfItsOwn) {
  const auto all = read_toml("[model]\nlayers = 2\n[model.mine]\nwidth = 8\n[train.mine]\nsteps = 1\n", "f");
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[1].key, "model.mine.width");
  EXPECT_EQ(all[1].value, Value(int64_t{8}));
  EXPECT_EQ(all[2].key, "train.mine");
  EXPECT_EQ(all[2].shown, "a table");
  EXPECT_NE(error_of("[model.mine]\nwidth = 8\n").find("unknown key model.mine.width"), std::string::npos);
}

TEST(ReadToml, ErrorsSayWhere) {
  EXPECT_EQ(error_of("[train]\nsteps = = 3\n").substr(0, 14), "job.toml:2:9: ");
  EXPECT_EQ(error_of("[train\n").substr(0, 11), "job.toml:1:");
  EXPECT_EQ(error_of("[train]\nsteps = 1\nsteps = 2\n").substr(0, 11), "job.toml:3:");
  EXPECT_EQ(error_of("a = \"\xff\"\n").substr(0, 11), "job.toml:1:");
  EXPECT_EQ(error_of("[train]\n stéps = 1\n").substr(0, 12), "job.toml:2:4");
  for (const char* head : {"[\\", "[=", "[[.", "[[\n", "[ ", "[]", "[\"a\"]\n["}) {
    EXPECT_NE(error_of(head).find(": a section has a name: [train]"), std::string::npos) << head;
  }
}

TEST(ReadToml, CharactersBeyondAsciiInQuotesAndComments) {
  const std::string text =
      "\xEF\xBB\xBF# é…\n[data]\npath = \"é.txt\" # ü\ntokenizer = 'é\\'\n[observe]\n"
      "name = \"\"\"é\"\"\"\"\" # é\nrun_dir = '''é\n'é'''\n[checkpoint]\nresume = \"\\\"é\"\n"
      "start_from = \"\"\"a\\\n  é\"\"\"\n";
  const Config config = resolve_text(text, "job.toml");
  EXPECT_EQ(config.data.path, "é.txt");
  EXPECT_EQ(config.data.tokenizer, "é\\");
  EXPECT_EQ(config.observe.name, "é\"\"");
  EXPECT_EQ(config.observe.run_dir, "é\n'é");
  EXPECT_EQ(config.checkpoint.resume, "\"é");
  EXPECT_EQ(config.checkpoint.start_from, "aé");
}

TEST(ReadToml, BoundsSizeAndDepth) {
  EXPECT_NE(error_of(std::string((size_t{1} << 20) + 1, ' ')).find("job.toml is larger than 1 MiB"), std::string::npos);
  EXPECT_EQ(error_of(std::string(size_t{1} << 20, '\n')), "no error");
  EXPECT_EQ(error_of("# " + std::string(5000, '.') + "\n"), "no error");
  EXPECT_NE(error_of(repeat("a.", 500'000) + "a = 1").find("more names than any key has"), std::string::npos);
  EXPECT_NE(error_of("[" + repeat("a.", 500'000) + "a]").find("more names than any key has"), std::string::npos);
  EXPECT_FALSE(survives("a = " + repeat("[", 500'000)));
  EXPECT_FALSE(survives("a = " + repeat("{a=", 300'000)));
  EXPECT_FALSE(survives(repeat("[", 500'000)));
  EXPECT_FALSE(survives("a = \"" + repeat("\\", 500'000)));
  EXPECT_FALSE(survives(repeat("a", 500'000) + " = 1"));
  EXPECT_FALSE(survives("[model]\nkind = \"" + repeat("a", 500'000) + "\""));
  // As deep as the two limits together let it be.
  const std::string level = "[\n{" + repeat("a.", 255) + "a = ";
  EXPECT_FALSE(survives("[" + repeat("b.", 250) + "b]\nx = " + repeat(level, 7) + "1" + repeat("}\n]", 7)));
}

TEST(ReadToml, ManySmallThings) {
  EXPECT_FALSE(survives("a = [" + repeat("1,", 500'000) + "]"));
  std::string many;
  for (int i = 0; many.size() < 1'000'000; ++i) many += "k" + std::to_string(i) + "=1\n";
  EXPECT_FALSE(survives(many));
}

TEST(ReadToml, RandomBytes) {
  for (uint64_t round = 0; round < 3000; ++round) {
    const Philox random(11, "bytes", round);
    std::string text(random.below(200, 0), '\0');
    for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(random.below(256, i + 1));
    survives(text);
  }
}

TEST(ReadToml, RandomTokens) {
  static const std::vector<std::string> kTokens = {
      "[",    "]",      "{",          "}",      "=",   ".",         ",",          "\n",    "\"",
      "'",    "\"\"\"", "'''",        "#",      "\\",  "\\u00",     "_",          "-",     "+",
      "1",    "0x",     "1e",         "inf",    "nan", "true",      "model",      "train", "steps",
      "kind", "gpt2",   "1979-05-27", "T07:32", "Z",   "\r\n",      "\t",         " ",     "\xe2\x80\xa6",
      "\xf0", "é",      "a",          "[[",     "]]",  "[train]\n", "steps = 1\n"};
  for (uint64_t round = 0; round < 6000; ++round) {
    const Philox random(12, "tokens", round);
    std::string text;
    for (uint64_t i = 0, count = random.below(40, 0); i < count; ++i) {
      text += kTokens[random.below(kTokens.size(), i + 1)];
    }
    survives(text);
  }
}

TEST(ReadToml, MutationsOfValidFiles) {
  std::vector<std::string> valid;
  for (const Preset& preset : list_presets()) valid.push_back(std::string(preset.toml));
  valid.push_back(to_toml(resolve({})));
  int accepted = 0, refused = 0;
  for (uint64_t round = 0; round < 3000; ++round) {
    const Philox random(13, "mutations", round);
    std::string text = valid[random.below(valid.size(), 0)];
    for (uint64_t i = 0, count = 1 + random.below(3, 1); i < count; ++i) {
      const size_t at = random.below(text.size(), 10 + 4 * i);
      const size_t length = std::min<size_t>(random.below(20, 11 + 4 * i), text.size() - at);
      switch (random.below(5, 12 + 4 * i)) {
        case 0:
          text[at] = static_cast<char>(text[at] ^ (1 << random.below(8, 13 + 4 * i)));
          break;
        case 1:
          text.erase(at, length);
          break;
        case 2:
          text.insert(at, text.substr(random.below(text.size(), 13 + 4 * i), length));
          break;
        case 3:
          text.insert(at, "999999999999999999999");
          break;
        default:
          text.resize(at + 1);
      }
    }
    (survives(text) ? accepted : refused) += 1;
  }
  EXPECT_GT(accepted, 100);
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace trireme
