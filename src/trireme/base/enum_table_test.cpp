#include "trireme/base/enum_table.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace trireme {

enum class EnumOfThree : uint8_t { kFirst, kSecond, kThird };

namespace {

struct RowOfThree {
  EnumOfThree value;
};

constexpr RowOfThree kAllThree[] = {{EnumOfThree::kFirst}, {EnumOfThree::kSecond}, {EnumOfThree::kThird}};
constexpr RowOfThree kOneMissing[] = {{EnumOfThree::kFirst}, {EnumOfThree::kSecond}};
constexpr RowOfThree kSwapped[] = {{EnumOfThree::kFirst}, {EnumOfThree::kThird}, {EnumOfThree::kSecond}};

TEST(EnumTable, FindsMissingAndSwappedRows) {
  EXPECT_TRUE(has_row_of_each(kAllThree, &RowOfThree::value));
  EXPECT_FALSE(has_row_of_each(kOneMissing, &RowOfThree::value));
  EXPECT_FALSE(has_row_of_each(kSwapped, &RowOfThree::value));
}

}  // namespace
}  // namespace trireme
