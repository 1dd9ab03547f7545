// The bytes of event files: framing, checksums, and the messages as a small decoder sees them.
#include "trireme/observe/tensorboard.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <map>

#include "trireme/base/crc32c.h"
#include "trireme/base/error.h"
#include "trireme/observe/folder_test_util.h"

namespace trireme {
namespace {

/// A message: number of a field to its values; varints and fixed numbers as 8 bytes.
using Message = std::multimap<uint64_t, std::string>;

uint64_t little_endian(std::string_view bytes) {
  uint64_t number = 0;
  for (size_t i = bytes.size(); i-- > 0;) number = number << 8 | static_cast<uint8_t>(bytes[i]);
  return number;
}

std::string_view take(std::string_view& bytes, size_t size) {
  EXPECT_LE(size, bytes.size());
  const std::string_view taken = bytes.substr(0, size);
  bytes.remove_prefix(taken.size());
  return taken;
}

uint64_t take_varint(std::string_view& bytes) {
  uint64_t number = 0;
  for (int shift = 0; shift < 70 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<uint8_t>(take(bytes, 1)[0]);
    if (shift < 64) number |= uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return number;
  }
  ADD_FAILURE() << "a number without an end";
  return 0;
}

Message decode(std::string_view bytes) {
  Message message;
  while (!bytes.empty() && !testing::Test::HasFailure()) {
    const uint64_t key = take_varint(bytes);
    std::string value;
    if ((key & 7) == 0) {
      const uint64_t number = take_varint(bytes);
      value.assign(reinterpret_cast<const char*>(&number), sizeof number);
    } else {
      EXPECT_NE((key & 7) == 1 || (key & 7) == 2 || (key & 7) == 5, false) << key;
      value = take(bytes, (key & 7) == 1 ? 8 : (key & 7) == 5 ? 4 : take_varint(bytes));
    }
    message.emplace(key >> 3, value);
  }
  return message;
}

std::string only(const Message& message, uint64_t field) {
  EXPECT_EQ(message.count(field), 1u) << "field " << field;
  const auto found = message.find(field);
  return found == message.end() ? std::string() : found->second;
}

std::vector<Message> decode_file(const std::filesystem::path& path) {
  const std::string file = read_whole_file(path, 1 << 20);
  std::string_view bytes = file;
  std::vector<Message> events;
  while (!bytes.empty() && !testing::Test::HasFailure()) {
    const std::string_view length = take(bytes, 8);
    EXPECT_EQ(little_endian(take(bytes, 4)), masked_crc32c(length));
    const std::string_view data = take(bytes, little_endian(length));
    EXPECT_EQ(little_endian(take(bytes, 4)), masked_crc32c(data));
    events.push_back(decode(data));
  }
  return events;
}

TensorBoardOptions at_noon(std::optional<int64_t> resumed_step = {}) {
  return {resumed_step, [] { return std::chrono::system_clock::time_point(std::chrono::milliseconds(1772366400250)); }};
}

TEST(TensorBoard, KnownBytesOfARecord) {
  // CRC32C of "123456789" is e3069283, the check value of its definition.
  ASSERT_EQ(crc32c("123456789"), 0xe3069283u);
  const uint32_t masked = ((0xe3069283u >> 15) | (0xe3069283u << 17)) + 0xa282ead8u;
  EXPECT_EQ(masked_crc32c("123456789"), masked);
  EXPECT_EQ(masked_crc32c(""), 0xa282ead8u);
  const std::string record = tensorboard_record("123456789");
  ASSERT_EQ(record.size(), 8 + 4 + 9 + 4u);
  EXPECT_EQ(record.substr(0, 8), std::string("\x09\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(record.substr(12, 9), "123456789");
  EXPECT_EQ(little_endian(std::string_view(record).substr(21)), masked);
  // Every such file begins with a record of 24 bytes, and these are the bytes that it begins with.
  EXPECT_EQ(tensorboard_record(std::string(24, 'x')).substr(0, 12),
            std::string("\x18\0\0\0\0\0\0\0\xa3\x7f\x4b\x22", 12));
}

TEST(TensorBoard, FileOfScalars) {
  const TestFolder folder;
  TensorBoardWriter writer(folder / "deep/er", at_noon());
  const std::string name = writer.path().filename().string();
  EXPECT_TRUE(name.starts_with("events.out.tfevents.1772366400.")) << name;
  EXPECT_TRUE(name.ends_with(fmt::format(".{}", ::getpid()))) << name;
  writer.add_scalars(300, {{"loss/training", 1.5}, {"learning rate", 3e-4}, {"nan", std::nan("")}});
  writer.add_scalars(301, {});
  writer.add_scalars(-1, {{"t", 1}});

  const auto events = decode_file(writer.path());
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(only(events[0], 3), "brain.Event:2");
  EXPECT_NEAR(std::bit_cast<double>(little_endian(only(events[0], 1))), 1772366400.25, 1e-6);
  EXPECT_EQ(little_endian(only(events[1], 2)), 300u);
  const Message summary = decode(only(events[1], 5));
  ASSERT_EQ(summary.count(1), 3u);
  std::vector<std::pair<std::string, float>> found;
  for (const auto& [field, bytes] : summary) {
    const Message value = decode(bytes);
    found.emplace_back(only(value, 1), std::bit_cast<float>(static_cast<uint32_t>(little_endian(only(value, 2)))));
  }
  EXPECT_EQ(found[0], (std::pair<std::string, float>("loss/training", 1.5f)));
  EXPECT_EQ(found[1], (std::pair<std::string, float>("learning rate", 3e-4f)));
  EXPECT_TRUE(std::isnan(found[2].second));
  EXPECT_EQ(little_endian(only(events[2], 2)), UINT64_MAX);
}

TEST(TensorBoard, TextAndLengthsOfEverySize) {
  const TestFolder folder;
  TensorBoardWriter writer(folder.path(), at_noon());
  writer.add_preformatted("config", "[model]\nlayers = 2");
  const std::vector<size_t> sizes = {0, 1, 127, 128, 16383, 16384, 100'000};
  for (const size_t size : sizes) writer.add_text("long", std::string(size, '#'), 5);
  const auto events = decode_file(writer.path());
  ASSERT_EQ(events.size(), 2 + sizes.size());
  const auto text_of = [](const Message& event) {
    const Message value = decode(only(decode(only(event, 5)), 1)), tensor = decode(only(value, 8));
    EXPECT_EQ(only(decode(only(decode(only(value, 9)), 1)), 1), "text");
    EXPECT_EQ(little_endian(only(tensor, 1)), 7u);
    return only(tensor, 8);
  };
  EXPECT_EQ(text_of(events[1]), "    [model]\n    layers = 2");
  for (size_t i = 0; i < sizes.size(); ++i) EXPECT_EQ(text_of(events[2 + i]), std::string(sizes[i], '#'));
}

TEST(TensorBoard, AResumedRunHidesLaterSteps) {
  const TestFolder folder;
  const TensorBoardWriter first(folder.path(), at_noon()), second(folder.path(), at_noon(500));
  EXPECT_NE(first.path(), second.path());
  EXPECT_EQ(decode_file(first.path()).size(), 1u);
  const auto events = decode_file(second.path());
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(little_endian(only(events[1], 2)), 501u);
  EXPECT_EQ(little_endian(only(decode(only(events[1], 7)), 1)), 1u);
}

TEST(TensorBoard, AFailedWriteLeavesWholeRecords) {
  const TestFolder folder;
  TensorBoardWriter writer(folder.path(), at_noon());
  set_pretended_space(10);
  EXPECT_THROW(writer.add_scalars(1, {{"a", 1}}), SystemError);
  set_pretended_space({});
  writer.add_scalars(2, {{"a", 2}});
  EXPECT_EQ(decode_file(writer.path()).size(), 2u);
  EXPECT_THROW(TensorBoardWriter(writer.path() / "x"), SystemError);
}

}  // namespace
}  // namespace trireme
