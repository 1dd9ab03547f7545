#include "trireme/measure/train/tokens.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "trireme/data/text/token_file.h"

namespace trireme::measure {
namespace {

std::vector<int64_t> ids_of(const TokenFile& file) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < file.tokens.count; ++i) ids.push_back(file.tokens.at(i));
  return ids;
}

TEST(RandomTokenFile, IsReadAsTokensAndGoesAway) {
  std::filesystem::path path;
  std::vector<int64_t> first;
  {
    const RandomTokenFile tokens(100, 300'000);
    path = tokens.path();
    const TokenFile file = open_token_file(path, FileCache::kMemory, 100);
    EXPECT_EQ(file.tokens.width, 2);
    first = ids_of(file);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  ASSERT_EQ(first.size(), 300'000u);
  std::vector<int64_t> counts(100, 0);
  for (const int64_t id : first) ++counts[static_cast<size_t>(id)];
  for (const int64_t count : counts) EXPECT_NEAR(static_cast<double>(count), 3000, 300);  // more than 5 deviations
  const RandomTokenFile again(100, 300'000);
  EXPECT_EQ(ids_of(open_token_file(again.path(), FileCache::kMemory, 100)), first);
}

TEST(RandomTokenFile, HasWideIdsForLargeVocabularies) {
  const RandomTokenFile tokens(128'256, 5000);
  const TokenFile file = open_token_file(tokens.path(), FileCache::kMemory, 128'256);
  EXPECT_EQ(file.tokens.width, 4);
  EXPECT_GT(file.largest, 65'536);
}

}  // namespace
}  // namespace trireme::measure
