// CRC32C against published values, against a loop over bits, and in pieces.
#include "trireme/base/crc32c.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "trireme/base/philox.h"

namespace trireme {
namespace {

uint32_t bit_by_bit(std::span<const std::byte> bytes) {
  uint32_t crc = 0xFFFFFFFF;
  for (const std::byte byte : bytes) {
    crc ^= static_cast<uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78U : 0U);
  }
  return ~crc;
}

std::vector<std::byte> random_bytes(size_t n) {
  const Philox random(11, "crc32c");
  std::vector<std::byte> bytes(n);
  for (size_t i = 0; i < n; ++i) bytes[i] = static_cast<std::byte>(random.below(256, i));
  return bytes;
}

TEST(Crc32c, PublishedValues) {  // RFC 3720, appendix B.4, and the check value of the catalogue of CRCs
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43U);
  std::string rising;
  for (char i = 0; i < 32; ++i) rising += i;
  EXPECT_EQ(crc32c(rising), 0x46DD794EU);
  EXPECT_EQ(crc32c(""), 0U);
}

TEST(Crc32c, InstructionTablesAndBitsAgreeForEveryLengthAndAlignment) {
  const std::vector<std::byte> bytes = random_bytes(400);
  for (size_t first = 0; first < 9; ++first) {
    for (size_t n = 0; first + n <= bytes.size(); n += n < 40 ? 1 : 37) {
      const std::span<const std::byte> part(bytes.data() + first, n);
      const uint32_t expected = bit_by_bit(part);
      ASSERT_EQ(crc32c(part), expected) << first << " " << n;
      ASSERT_EQ(crc32c_by_tables(part), expected) << first << " " << n;
    }
  }
}

TEST(Crc32c, PiecesMakeTheWhole) {
  const std::vector<std::byte> bytes = random_bytes(100);
  const std::span<const std::byte> all(bytes);
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    ASSERT_EQ(crc32c(all.subspan(cut), crc32c(all.first(cut))), crc32c(all));
    ASSERT_EQ(crc32c_by_tables(all.subspan(cut), crc32c(all.first(cut))), crc32c(all));
  }
}

TEST(Crc32c, NoticesEveryBit) {
  std::vector<std::byte> bytes = random_bytes(64);
  const uint32_t good = crc32c(std::span<const std::byte>(bytes));
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    ASSERT_NE(crc32c(std::span<const std::byte>(bytes)), good) << bit;
    bytes[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
  }
}

}  // namespace
}  // namespace trireme
