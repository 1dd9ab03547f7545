// The manifest: it comes back, every bit of it is protected, and none makes the reader crash or leave its folder.
#include "trireme/checkpoint/manifest.h"

#include <fmt/format.h>

#include <array>

#include "trireme/base/crc32c.h"
#include "trireme/base/json.h"
#include "trireme/checkpoint/checkpoint_test_util.h"

namespace trireme {
namespace {

Manifest small_manifest() {
  Manifest manifest;
  manifest.step = 600;
  manifest.token = "00112233aabbccdd";
  manifest.num_shards = 2;
  manifest.meta = R"({"loss": 0.1,  "text": "ä\n"})";
  manifest.files = {{"weights-00000-of-00002.safetensors", (3 << 20) + 5, {1, 0xFFFFFFFF, 3, 4}},
                    {"weights-00001-of-00002.safetensors", 400, {0xabcdef01}}};
  manifest.parts = {{{"w", DataType::kFloat, {10, 4}}, 0, 128, 0, 6},
                    {{"w", DataType::kFloat, {10, 4}}, 1, 64, 6, 4},
                    {{"scalar", DataType::kInt64, {}}, 0, 224, 0, 1},
                    {{"empty", DataType::kUInt8, {0, 7}}, 1, 128, 0, 0}};
  return manifest;
}

Manifest parse(std::string_view text) { return Manifest::from_json(text, "step-000600", "manifest.json"); }

/// With a checksum that fits, as a forger would.
std::string sealed(std::string text) {
  const std::string_view key = "\"manifest_crc32c\": \"";
  const size_t at = text.rfind(key) + key.size();
  return text.replace(at, 8, fmt::format("{:08x}", crc32c(text.substr(0, at))));
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return sealed(text.replace(at, from.size(), to));
}

TEST(Manifest, ComesBack) {
  const Manifest manifest = small_manifest();
  manifest.check_complete();
  EXPECT_EQ(parse(manifest.to_json()), manifest);
  EXPECT_EQ(parse(sealed(manifest.to_json())), manifest);
  EXPECT_EQ(nlohmann::json::parse(manifest.to_json()).at("tensors").size(), 4U);
}

TEST(Manifest, EveryFlippedBitIsNoticed) {
  std::string text = small_manifest().to_json();
  for (size_t bit = 0; bit < text.size() * 8; ++bit) {
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << (bit % 8)));
    ASSERT_THROW(parse(text), DamagedError) << bit;
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << (bit % 8)));
  }
  EXPECT_EQ(parse(text), small_manifest());
}

TEST(Manifest, EveryTruncationAndAdditionIsNoticed) {
  const std::string text = small_manifest().to_json();
  for (size_t n = 0; n < text.size(); ++n) ASSERT_THROW(parse(text.substr(0, n)), DamagedError) << n;
  EXPECT_THROW(parse(text + "\n"), DamagedError);
  EXPECT_THROW(parse(" " + text), DamagedError);
}

TEST(Manifest, AnotherVersionIsNoDamage) {
  const std::string text = replaced(small_manifest().to_json(), "\"version\": 1", "\"version\": 2");
  try {
    parse(text);
    FAIL();
  } catch (const DamagedError&) {
    FAIL() << "would be set aside";
  } catch (const Error& error) {
    EXPECT_TRUE(contains(error.what(), "version 2")) << error.what();
  }
}

TEST(Manifest, NamesStayInTheFolder) {
  const std::string good = small_manifest().to_json();
  for (const char* name : {"../x", "/etc/passwd", "a/b", "..", ".", "", ".hidden", "a\\\\b", "a\\u0000b", "a b"}) {
    const std::string message = message_of([&] { parse(replaced(good, "weights-00000-of-00002.safetensors", name)); });
    EXPECT_TRUE(contains(message, "is no name of a file in this folder")) << name << ": " << message;
  }
}

TEST(Manifest, ForgedOnesAreRefused) {
  const std::string good = small_manifest().to_json();
  const std::vector<std::array<std::string, 3>> cases = {
      {"\"format\": \"trireme checkpoint\"", "\"format\": \"other\"", "no manifest"},
      {"\"num_shards\": 2", "\"num_shards\": 0", "num_shards = 0"},
      {"\"num_shards\": 2", "\"num_shards\": -2", "not negative"},
      {"\"num_shards\": 2,", "\"num_shards\": 2, \"more\": 1,", "unknown key \"more\""},
      {"\"bytes\": 400", "\"bytes\": 18446744073709551615", "number of checksums"},
      {"abcdef01", "ABCDEF01", "wrong digits"},
      {"\"file\": 1", "\"file\": 2", "no file 2"},
      {"\"type\": \"I64\"", "\"type\": \"I63\"", "I63"},
      {"\"shape\": [10, 4]", "\"shape\": [9223372036854775807, 4]", "shape is too large"},
      {"\"rows\": 6", "\"rows\": 11", "has 10 rows only"},
      {"weights-00000-of-00002", "weights-00001-of-00002", "is listed twice"},
  };
  for (const auto& [from, to, words] : cases) {
    const std::string message = message_of([&] { parse(replaced(good, from, to)); });
    EXPECT_TRUE(contains(message, words)) << message << "\nexpected: " << words;
    EXPECT_TRUE(contains(message, "checkpoint step-000600 is damaged: manifest.json, byte ")) << message;
  }
}

TEST(Manifest, IncompleteTensorsAreRefused) {
  const auto problem = [](auto&& change) {
    Manifest manifest = small_manifest();
    change(manifest);
    return message_of([&] { manifest.check_complete(); });
  };
  EXPECT_EQ(problem([](Manifest&) {}), "");
  EXPECT_TRUE(contains(problem([](Manifest& m) { m.parts.erase(m.parts.begin()); }), "rows 0 to 6 are in no shard"));
  EXPECT_TRUE(
      contains(problem([](Manifest& m) { m.parts.erase(m.parts.begin() + 1); }), "rows 6 to 10 are in no shard"));
  EXPECT_TRUE(contains(problem([](Manifest& m) {
                         m.parts.push_back(m.parts[2]);
                         m.parts.back().offset = 300;
                       }),
                       "in two shards"));
  EXPECT_TRUE(contains(problem([](Manifest& m) { m.parts[1].tensor.type = DataType::kInt32; }), "disagree"));
  EXPECT_TRUE(contains(problem([](Manifest& m) { m.parts[1].offset = 399; }), "beyond the end"));
  EXPECT_TRUE(contains(problem([](Manifest& m) { m.parts[2].offset = 220; }), "overlap"));
}

TEST(Manifest, FuzzedOnesNeverCrash) {
  const std::string good = small_manifest().to_json();
  const Philox random(9, "fuzz");
  uint64_t draw = 0;
  int accepted = 0;
  for (int trial = 0; trial < 30000; ++trial) {
    std::string text = good;
    for (uint64_t i = 0, n = 1 + random.below(3, draw++); i < n; ++i) {
      const size_t at = random.below(text.size() - 40, draw++);
      switch (random.below(3, draw++)) {
        case 0:
          text[at] = static_cast<char>(random.below(128, draw++));
          break;
        case 1:
          text.erase(at, 1 + random.below(8, draw++));
          break;
        default: {
          const size_t from = random.below(text.size(), draw++);
          text.insert(at, text.substr(from, random.below(30, draw++)));
        }
      }
    }
    if (text.rfind("\"manifest_crc32c\": \"") == std::string::npos) continue;
    text = sealed(text);
    try {
      const Manifest manifest = parse(text);
      manifest.check_complete();
      ++accepted;
    } catch (const Error&) {
      // A refusal is an answer.
    }
  }
  EXPECT_GT(accepted, 10);  // else the fuzzer only tests the checksum
}

}  // namespace
}  // namespace trireme
