// Byte-pair tokens: words, merges, round trips, the files they come from, and what bad files say.
#include "trireme/data/text/bpe.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>

#include "trireme/base/text.h"
#include "trireme/data/data_test_util.h"
#include "trireme/data/text/character_class.h"
#include "trireme/data/text/pretokenize.h"

namespace trireme {
namespace {

std::vector<std::string> words(std::string_view text) {
  std::vector<std::string> found;
  for (size_t at = 0; at < text.size();) {
    const size_t end = word_end(text, at);
    EXPECT_GT(end, at);
    EXPECT_LE(end, text.size());
    if (end <= at) break;
    found.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return found;
}

TEST(PretokenizeTest, CutsAsGpt2Does) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(words("Hello world, it's 2024!"), (Words{"Hello", " world", ",", " it", "'s", " 2024", "!"}));
  EXPECT_EQ(words("we'll they've I'm 'twas x'D"),
            (Words{"we", "'ll", " they", "'ve", " I", "'m", " '", "twas", " x", "'", "D"}));
  EXPECT_EQ(words("a  b   c\n\nd \t"), (Words{"a", " ", " b", "  ", " c", "\n", "\n", "d", " \t"}));
  EXPECT_EQ(words("x\n y"), (Words{"x", "\n", " y"}));
  EXPECT_EQ(words("naïve Ωmega 你好 ٣٤x"), (Words{"naïve", " Ωmega", " 你好", " ٣٤", "x"}));
  EXPECT_EQ(words("a\xff\xfe b"), (Words{"a", "\xff\xfe", " b"}));
  EXPECT_EQ(words("a\u3000\u00a0b"), (Words{"a", "\u3000", "\u00a0", "b"}));
  EXPECT_TRUE(words("").empty());
}

TEST(CharacterClassTest, KnowsEndsOfRanges) {
  using enum CharacterClass;
  for (const uint32_t c : {0x41u, 0x5au, 0x7au, 0xaau, 0xe9u, 0x3b1u, 0x4e00u, 0xac00u, 0x1d400u, 0x3134au}) {
    EXPECT_EQ(class_of(c), kLetter) << c;
  }
  for (const uint32_t c : {0x30u, 0x39u, 0xb2u, 0xbdu, 0x660u, 0x2160u, 0x1fbf9u}) EXPECT_EQ(class_of(c), kNumber) << c;
  for (const uint32_t c : {0x40u, 0x5bu, 0x60u, 0x7bu, 0xd7u, 0x300u, 0x200bu, 0x1f600u, 0x10ffffu}) {
    EXPECT_EQ(class_of(c), kOther) << c;
  }
  for (const uint32_t c : {0x09u, 0x0du, 0x20u, 0x85u, 0xa0u, 0x2003u, 0x3000u}) EXPECT_EQ(class_of(c), kSpace) << c;
}

TEST(CharacterClassTest, RefusesWhatIsNotUtf8) {
  for (const std::string_view bad : {"\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                                     "\xe4\xbd", "\xf5\x80\x80\x80"}) {
    EXPECT_FALSE(utf8_at(bad, 0).is_valid);
    EXPECT_EQ(utf8_at(bad, 0).num_bytes, 1u);
  }
  EXPECT_EQ(utf8_at("€", 0).code_point, 0x20acu);
  EXPECT_EQ(utf8_at("😀", 0).code_point, 0x1f600u);
}

/// The letters of GPT-2 for bytes, computed apart from the reader.
std::string letter(int byte) {
  const auto utf8 = [](int c) {
    std::string text;
    if (c < 0x80) return text += static_cast<char>(c);
    text += static_cast<char>(0xc0 | c >> 6);
    return text += static_cast<char>(0x80 | (c & 0x3f));
  };
  const auto plain = [](int b) { return (b > 32 && b < 127) || (b > 160 && b != 173); };
  int shifted = 256;
  for (int b = 0; b < byte; ++b) shifted += !plain(b);
  return utf8(plain(byte) ? byte : shifted);
}

std::string written(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) text += letter(static_cast<unsigned char>(c));
  return text;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

const std::vector<std::pair<std::string, std::string>> kMerges{{"h", "e"},   {"t", "he"},     {" ", "the"}, {"a", "a"},
                                                               {"aa", "aa"}, {"i", "n"},      {"in", "g"},  {" ", "a"},
                                                               {"l", "l"},   {"\xc3", "\xa9"}};

std::string vocab_json(std::string_view extra = {}) {
  std::string text = "{";
  for (int byte = 0; byte < 256; ++byte) text += fmt::format("{}: {}, ", quoted(letter(byte)), byte);
  int id = 256;
  for (const auto& [left, right] : kMerges) text += fmt::format("{}: {}, ", quoted(written(left + right)), id++);
  return text + fmt::format("\"<|endoftext|>\": {}{}}}", id, extra);
}

std::string merges_txt() {
  std::string text = "#version: 0.2\n";
  for (const auto& [left, right] : kMerges) text += written(left) + " " + written(right) + "\n";
  return text;
}

std::string tokenizer_json(bool as_pairs) {
  std::vector<std::string> list;
  for (const auto& [left, right] : kMerges) {
    list.push_back(as_pairs ? fmt::format("[{}, {}]", quoted(written(left)), quoted(written(right)))
                            : quoted(written(left) + " " + written(right)));
  }
  return fmt::format(
      R"({{"version": "1.0", "truncation": null, "normalizer": null,
 "added_tokens": [{{"id": 266, "content": "<|endoftext|>", "special": true}}, {{"id": 300, "content": "<|é|>", "special": true}}],
 "pre_tokenizer": {{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true}},
 "model": {{"type": "BPE", "dropout": null, "byte_fallback": false, "vocab": {}, "merges": [{}]}}}})",
      vocab_json(), join(list, ", "));
}

Bpe example() { return Bpe::from_tokenizer_json(tokenizer_json(false), "t.json"); }

TEST(BpeTest, MergesByRankFromTheLeft) {
  const Bpe bpe = example();
  const auto ids = [&](std::string_view text) { return bpe.encode(text); };
  EXPECT_EQ(ids("the the"), (std::vector<int32_t>{257, 258}));
  EXPECT_EQ(ids("aaaaa"), (std::vector<int32_t>{260, 'a'}));
  EXPECT_EQ(ids("aaaaaaa"), (std::vector<int32_t>{260, 259, 'a'}));
  EXPECT_EQ(ids(" alling"), (std::vector<int32_t>{263, 264, 262}));
  EXPECT_EQ(ids("é"), std::vector<int32_t>{265});
  EXPECT_EQ(ids("a<|endoftext|><|é|>the"), (std::vector<int32_t>{'a', 266, 300, 257}));
  EXPECT_EQ(bpe.vocab_size(), 301);
  EXPECT_TRUE(ids("").empty());
  expect_says(message_of([&] { bpe.decode(std::vector<int32_t>{5, 299}); }), {"id 299 has no token", "300"});
}

TEST(BpeTest, AnyBytesComeBack) {
  const Bpe bpe = example();
  std::mt19937 random(3);
  const std::string pieces[] = {"the ", "aa", "é", "<|endoftext|>", "\xff", " \n", "ing", "<|", "'ll"};
  for (int i = 0; i < 600; ++i) {
    std::string text = i % 2 == 0 ? random_bytes(random, random() % 300) : "";
    if (i % 2 == 1) {
      for (auto n = random() % 60; n > 0; --n) text += pieces[random() % std::size(pieces)];
    }
    ASSERT_EQ(bpe.decode(bpe.encode(text)), text);
  }
}

TEST(BpeTest, OneLongWordIsNotQuadratic) {
  const std::string text(size_t{1} << 20, 'a');
  EXPECT_EQ(example().encode(text).size(), text.size() / 4);
}

TEST(BpeTest, IsFast) {
  std::string text;
  std::mt19937 random(1);
  while (text.size() < size_t{2} << 20) {
    for (auto n = random() % 8 + 1; n > 0; --n) text += static_cast<char>('a' + random() % 3);
    text += random() % 9 == 0 ? ", " : " ";
  }
  const auto start = std::chrono::steady_clock::now();
  EXPECT_FALSE(example().encode(text).empty());
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  RecordProperty("megabytes_per_second", fmt::format("{:.1f}", static_cast<double>(text.size()) / 1e6 / seconds));
  EXPECT_LT(seconds, 20.0) << "a floor for a loaded machine under sanitizers; alone it is far faster";
}

class BpeFileTest : public DataTest {};

TEST_F(BpeFileTest, AllFormsGiveTheSameTokens) {
  write("gpt2/vocab.json", vocab_json());
  write("gpt2/merges.txt", merges_txt());
  write("hf/tokenizer.json", tokenizer_json(true));
  const std::string text = "the thing's aaaa <|endoftext|> all é";
  const auto expected = example().encode(text);
  EXPECT_EQ(Bpe::load(folder_ / "gpt2").encode(text), expected);
  EXPECT_EQ(Bpe::load(folder_ / "hf").encode(text), expected);
  EXPECT_EQ(Bpe::load(folder_ / "hf" / "tokenizer.json").encode(text), expected);
}

TEST_F(BpeFileTest, BadFilesAreNamed) {
  const auto load = [&](const std::string& name) { return message_of([&] { Bpe::load(folder_ / name); }); };
  expect_says(load("absent"), {"absent", "No such file", "check data.tokenizer"});
  write("empty/readme", "");
  expect_says(load("empty"), {"neither tokenizer.json nor vocab.json"});
  write("half/vocab.json", vocab_json());
  expect_says(load("half"), {"neither"});
  expect_says(load("half/vocab.json"), {"half a tokenizer"});
  const auto refused = [&](const std::string& from, const std::string& to) {
    std::string text = tokenizer_json(false);
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    return message_of([&] { Bpe::from_tokenizer_json(text, "t.json"); });
  };
  expect_says(refused("\"BPE\"", "\"Unigram\""), {"t.json", "model.type is \"Unigram\""});
  expect_says(refused("\"ByteLevel\"", "\"Sequence\""), {"pre_tokenizer.type is \"Sequence\"", "GPT-2"});
  expect_says(refused("\"add_prefix_space\": false", "\"add_prefix_space\": true"),
              {"pre_tokenizer.add_prefix_space = true"});
  expect_says(refused("\"byte_fallback\": false", "\"byte_fallback\": true"), {"model.byte_fallback"});
  expect_says(refused("\"normalizer\": null", "\"normalizer\": {\"type\": \"NFC\"}"), {"normalizer.type = NFC"});
  expect_says(refused("\"merges\"", "\"nothing\""), {"model.merges is missing"});
  expect_says(refused("\"A\": 65", "\"A\": 66"), {"same id 66", "\"A\""});
  expect_says(refused("\"A\": 65", "\"B\": 65"), {"B is given twice"});
  expect_says(refused("\"A\": 65, ", ""), {"byte 65 has no token"});
  expect_says(refused("\"A\": 65", "\"A\": -1"), {"id -1"});
  expect_says(refused("\"A\": 65", "\"A\": 4294967296"), {"id 4294967296"});
  expect_says(refused("\"A\": 65", "\"A\": 6.5"), {"6.5"});
  expect_says(refused("\"A\": 65", "\"A\": \"x\""), {"is a text"});
  expect_says(refused("\"A\": 65", "\"A\": [1]"), {"not a number"});
  expect_says(refused("\"the\": 257, ", ""), {"merge 1", "\"t\" + \"he\"", "lacks"});
  expect_says(refused("\"t he\"", "\"h e\""), {"merge 1", "twice"});
  expect_says(refused("\"t he\"", "\"the\""), {"merge 1", "two tokens"});
  expect_says(refused("\"t he\"", "[\"t\"]"), {"merge 1 has 1 tokens"});
  expect_says(refused("\"t he\"", "\"t €\""), {"merge 1", "stands for no byte"});
  expect_says(refused("\"id\": 300", "\"id\": 5"), {"id 5 belongs"});
  expect_says(refused("\"id\": 300, ", ""), {"added_tokens[1]"});
  expect_says(refused("\"BPE\", ", "\"BPE\", , "), {"not JSON, at byte"});
  expect_says(message_of([&] { Bpe::from_tokenizer_json("[1]", "t.json"); }),
              {"not an object", "data.tokenizer names a tokenizer.json"});
  expect_says(message_of([&] { Bpe::from_vocab_and_merges(vocab_json(), "v", "#version: 0.2\n", "m"); }),
              {"no merges", "v with m"});
  expect_says(message_of([&] { Bpe::from_vocab_and_merges(vocab_json(), "v", "h e\nt\n", "m"); }),
              {"m: line 2 is \"t\""});
  expect_says(message_of([&] { Bpe::from_tokenizer_json(std::string(1 << 20, '['), "t.json"); }), {"t.json"});
  std::string deep = "{\"x\": " + std::string(1 << 16, '[');
  expect_says(message_of([&] { Bpe::from_tokenizer_json(deep, "t.json"); }), {"more than 64 levels deep"});
}

TEST_F(BpeFileTest, RandomAndChangedFilesThrowOnlyErrors) {
  std::mt19937 random(9);
  const std::string json = tokenizer_json(false), pairs = tokenizer_json(true), vocab = vocab_json(),
                    merges = merges_txt();
  int accepted = 0;
  for (int i = 0; i < 400; ++i) {
    const auto check = [&](auto call) { accepted += message_of(call) == "accepted"; };
    check([&] { Bpe::from_tokenizer_json(mutated(i % 2 == 0 ? json : pairs, random), "t.json"); });
    check([&] { Bpe::from_vocab_and_merges(mutated(vocab, random), "v", merges, "m"); });
    check([&] { Bpe::from_vocab_and_merges(vocab, "v", mutated(merges, random), "m"); });
    const std::string noise = random_bytes(random, random() % 200);
    check([&] { Bpe::from_tokenizer_json(noise, "t.json"); });
    check([&] { Bpe::from_vocab_and_merges(vocab, "v", noise, "m"); });
  }
  EXPECT_LT(accepted, 1500);
}

}  // namespace
}  // namespace trireme
