// Rows of tokens in pieces, token files of llm.c and nanoGPT, and what bad ones say.
#include "trireme/data/text/token_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "trireme/data/data_test_util.h"

namespace trireme {
namespace {

template <typename T>
std::string raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::string header(int32_t magic, int32_t version, int32_t count) {
  std::vector<int32_t> words(256);
  words[0] = magic;
  words[1] = version;
  words[2] = count;
  return raw(words);
}

std::vector<uint16_t> ramp(size_t count, uint16_t first = 0) {
  std::vector<uint16_t> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

TEST(TokenRowTest, ReadsAcrossPiecesOfAllWidths) {
  std::vector<int32_t> wide(50);
  std::iota(wide.begin(), wide.end(), 70000);
  std::string text;
  for (int i = 0; i < 30; ++i) text += static_cast<char>(200 + i);
  std::vector<TokenPiece> pieces{TokenPiece::of_text(text), TokenPiece::of_text(""), TokenPiece::of_ids(wide),
                                 TokenPiece::of_ids({1, 2, 3})};
  EXPECT_EQ(pieces[2].width, 4);
  EXPECT_EQ(pieces[3].width, 2);
  EXPECT_EQ(pieces[0].largest(), 229);
  EXPECT_EQ(pieces[1].largest(), -1);
  EXPECT_EQ(pieces[2].largest(), 70049);
  const TokenRow row(pieces);
  ASSERT_EQ(row.count(), 83);
  std::vector<int64_t> expected;
  for (const TokenPiece& piece : pieces) {
    for (int64_t i = 0; i < piece.count; ++i) expected.push_back(piece.at(i));
  }
  for (int64_t first = 0; first < 83; ++first) {
    for (int64_t count = 0; first + count <= 83; ++count) {
      std::vector<int64_t> out(static_cast<size_t>(count));
      row.copy(first, out);
      ASSERT_TRUE(std::equal(out.begin(), out.end(), expected.begin() + first));
    }
  }
}

TEST(TokenRowTest, TheLargestIsFoundAnywhere) {
  for (size_t count : {1, 63, 64, 65, 200}) {
    for (size_t at = 0; at < count; ++at) {
      std::vector<int32_t> ids(count, 3);
      ids[at] = 9;
      ASSERT_EQ(TokenPiece::of_ids(ids).largest(), 9);
    }
  }
}

TEST(SplitTokensTest, TheLastWholeWindowsAreHeldOutWhereAskedFor) {
  for (int64_t count = 5; count < 60; ++count) {
    for (const double fraction : {0.0, 0.1, 0.5, 0.99}) {
      std::vector<int32_t> ids(static_cast<size_t>(count));
      std::iota(ids.begin(), ids.end(), 0);
      const int64_t windows = (count - 1) / 4;
      if (fraction > 0 && windows < 2) continue;
      const SplitTokens split = split_tokens({TokenPiece::of_ids(ids)}, 4, {fraction, HoldOut::kEnd}, "x");
      const int64_t held = split.held_out ? split.held_out->size() : 0;
      EXPECT_EQ(split.train->size() + held, windows);
      EXPECT_EQ(held > 0, fraction > 0);
      if (held > 0) {
        Batch batch(split.held_out->shape(), 1);
        split.held_out->read(0, batch, 0);
        EXPECT_EQ(batch.input<int64_t>()[0], split.train->size() * 4);
        EXPECT_EQ(batch.target<int64_t>()[3], batch.input<int64_t>()[0] + 4);
      }
    }
  }
  const auto split = [](int64_t seq, double fraction) {
    return message_of([&] { split_tokens({TokenPiece::of_text("123456789")}, seq, {fraction}, "my.txt"); });
  };
  EXPECT_EQ(split(8, 0), "accepted");
  expect_says(split(9, 0), {"my.txt has 9 tokens, but 10 are needed", "model.seq = 9", "smaller model.seq"});
  expect_says(split(8, 0.1), {"17 are needed", "one held out"});
  expect_says(split(0, 0), {"model.seq = 0"});
  expect_says(split(2, 1), {"data.held_out = 1"});
}

/// Token number of the first token of each window.
std::vector<int64_t> starts(const Dataset& data) {
  std::vector<int64_t> found;
  Batch batch(data.shape(), 1);
  for (int64_t i = 0; i < data.size(); ++i) {
    data.read(i, batch, 0);
    found.push_back(batch.input<int64_t>()[0]);
  }
  return found;
}

TEST(SplitTokensTest, HeldOutWindowsAreDrawnFromTheWholeText) {
  std::vector<int32_t> ids(4001);
  std::iota(ids.begin(), ids.end(), 0);
  const auto split = [&](uint64_t seed) {
    return split_tokens({TokenPiece::of_ids(ids)}, 4, {0.2, HoldOut::kRandom, seed}, "x");
  };
  const SplitTokens first = split(1);
  std::vector<int64_t> held = starts(*first.held_out), all = starts(*first.train);
  EXPECT_EQ(held, starts(*split(1).held_out));
  EXPECT_NE(held, starts(*split(2).held_out));
  // An evaluation reads the first of them: those, too, are from everywhere.
  for (const size_t num_read : {size_t{50}, held.size()}) {
    std::vector<int> of_quarter(4);
    for (size_t i = 0; i < num_read; ++i) ++of_quarter[static_cast<size_t>(held[i] / 1000)];
    for (const int count : of_quarter) EXPECT_NEAR(count, static_cast<double>(num_read) / 4, num_read / 8.0);
  }
  // Each window is in one part, once.
  ASSERT_EQ(held.size(), 200u);
  all.insert(all.end(), held.begin(), held.end());
  std::sort(all.begin(), all.end());
  ASSERT_EQ(all.size(), 1000u);
  for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], static_cast<int64_t>(4 * i));
}

class TokenFileTest : public DataTest {
 protected:
  std::string open(const std::string& bytes, int64_t vocab = 0) const {
    const auto path = write("t.bin", bytes);
    return message_of([&] { open_token_file(path, FileCache::kMap, vocab); });
  }
};

TEST_F(TokenFileTest, ReadsAllFormatsMappedAndInMemory) {
  const std::vector<uint16_t> small = ramp(100);
  std::vector<uint32_t> large(100);
  std::iota(large.begin(), large.end(), 100000);
  for (const FileCache cache : {FileCache::kMap, FileCache::kMemory}) {
    TokenFile file = open_token_file(write("a.bin", raw(small)), cache, 100);
    EXPECT_FALSE(file.has_header);
    EXPECT_EQ(file.tokens.count, 100);
    EXPECT_EQ(file.largest, 99);
    EXPECT_EQ(file.tokens.at(42), 42);
    file = open_token_file(write("b.bin", header(20240520, 1, 100) + raw(small)), cache, 100);
    EXPECT_TRUE(file.has_header);
    EXPECT_EQ(file.tokens.at(42), 42);
    file = open_token_file(write("c.bin", header(20240801, 7, 100) + raw(large)), cache, 0);
    EXPECT_EQ(file.tokens.at(42), 100042);
    EXPECT_EQ(file.largest, 100099);
  }
  EXPECT_TRUE(looks_like_llmc(folder_ / "b.bin"));
  EXPECT_FALSE(looks_like_llmc(folder_ / "a.bin"));
  EXPECT_FALSE(looks_like_llmc(folder_ / "absent"));
}

TEST_F(TokenFileTest, BadFilesAreNamed) {
  const std::string body = raw(ramp(10));
  expect_says(open(""), {"t.bin holds no tokens"});
  expect_says(open("abc"), {"3 bytes, an odd number", "data.kind"});
  expect_says(open(header(20240520, 1, 10).substr(0, 500)), {"500 bytes", "header", "1024"});
  expect_says(open(header(20240520, 3, 10) + body), {"byte 4", "version 3", "only 1"});
  expect_says(open(header(20240801, 1, 10) + body), {"version 1", "only 7"});
  expect_says(open(header(20240520, 1, 11) + body), {"byte 8", "11 tokens of 2 bytes", "20 bytes follow"});
  expect_says(open(header(20240801, 7, -5) + body), {"-5 tokens"});
  expect_says(open(header(20240520, 1, 0)), {"no tokens"});
  expect_says(open(header(20240326, 3, 0) + body), {"20240326", "a model of llm.c"});
  expect_says(open(header(static_cast<int32_t>(__builtin_bswap32(20240520)), 1, 10) + body), {"big-endian"});
  const std::string ids = raw(std::vector<uint16_t>{1, 2, 500, 700, 3});
  expect_says(open(ids, 300), {"t.bin: token 2 is id 500", "model.vocab = 300", "at least 701", "no header of llm.c"});
  EXPECT_EQ(open(ids, 701), "accepted");
  expect_says(message_of([&] { open_token_file(folder_ / "absent", FileCache::kMap, 0); }),
              {"absent", "No such file", "data.path"});
  expect_says(message_of([&] { open_token_file(folder_, FileCache::kMap, 0); }), {"is a folder"});
}

TEST_F(TokenFileTest, RandomAndChangedFilesThrowOnlyErrors) {
  std::mt19937 random(2);
  const std::string good = header(20240520, 1, 50) + raw(ramp(50)),
                    wide = header(20240801, 7, 50) + raw(std::vector<uint32_t>(50, 7));
  for (int i = 0; i < 6000; ++i) {
    std::string bytes = i % 3 == 0 ? random_bytes(random, random() % 1200) : mutated(i % 3 == 1 ? good : wide, random);
    if (i % 6 == 0 && bytes.size() >= 12) bytes.replace(0, 8, header(20240520, 1, 0).substr(0, 8));
    if (i % 5 == 0 && bytes.size() >= 12) bytes.replace(8, 4, random_bytes(random, 4));
    message_of([&] { read_token_file(FileBytes::in_memory("t.bin", bytes), random() % 100); });
  }
}

}  // namespace
}  // namespace trireme
