#include "trireme/observe/tensorboard.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <concepts>

#include "trireme/base/crc32c.h"
#include "trireme/base/error.h"
#include "trireme/base/host.h"

namespace trireme {
namespace {

// Numbers of the fields, as event.proto, summary.proto and tensor.proto of TensorBoard give them.
namespace event_field {
constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
}
namespace summary_field {
constexpr int kValue = 1;
}
namespace value_field {
constexpr int kTag = 1, kSimpleValue = 2, kTensor = 8, kMetadata = 9;
}
namespace tensor_field {
constexpr int kType = 1, kShape = 2, kTexts = 8;
}
constexpr int kTypeString = 7;    // DT_STRING
constexpr int kSessionStart = 1;  // SessionLog.START

template <std::unsigned_integral Number>
void put_little_endian(std::string& out, Number number) {
  for (size_t i = 0; i < sizeof(Number); ++i) out += static_cast<char>(number >> (8 * i) & 0xff);
}

void put_varint(std::string& out, uint64_t number) {
  for (; number >= 0x80; number >>= 7) out += static_cast<char>((number & 0x7f) | 0x80);
  out += static_cast<char>(number);
}

enum WireType { kVarint = 0, kEightBytes = 1, kBytes = 2, kFourBytes = 5 };
void put_key(std::string& out, int field, WireType type) { put_varint(out, static_cast<uint64_t>(field << 3 | type)); }

void put_integer(std::string& out, int field, int64_t number) {
  put_key(out, field, kVarint);
  put_varint(out, static_cast<uint64_t>(number));
}

void put_double(std::string& out, int field, double number) {
  put_key(out, field, kEightBytes);
  put_little_endian(out, std::bit_cast<uint64_t>(number));
}

void put_float(std::string& out, int field, float number) {
  put_key(out, field, kFourBytes);
  put_little_endian(out, std::bit_cast<uint32_t>(number));
}

/// A text, or a message within a message.
void put_bytes(std::string& out, int field, std::string_view bytes) {
  put_key(out, field, kBytes);
  put_varint(out, bytes.size());
  out += bytes;
}

std::string scalar_value(std::string_view tag, double number) {
  std::string value;
  put_bytes(value, value_field::kTag, tag);
  put_float(value, value_field::kSimpleValue, static_cast<float>(number));
  return value;
}

/// A tensor of one text, marked as one for the text tab.
std::string text_value(std::string_view tag, std::string_view text) {
  std::string dim, shape, tensor, plugin, metadata, value;
  put_integer(dim, 1, 1);
  put_bytes(shape, 2, dim);
  put_integer(tensor, tensor_field::kType, kTypeString);
  put_bytes(tensor, tensor_field::kShape, shape);
  put_bytes(tensor, tensor_field::kTexts, text);
  put_bytes(plugin, 1, "text");
  put_bytes(metadata, 1, plugin);
  put_bytes(value, value_field::kTag, tag);
  put_bytes(value, value_field::kTensor, tensor);
  put_bytes(value, value_field::kMetadata, metadata);
  return value;
}

/// A second writer of this process in this second gets a number.
AppendFile new_file(const std::filesystem::path& folder, std::chrono::system_clock::time_point now) {
  make_folders(folder);
  const auto seconds = std::chrono::floor<std::chrono::seconds>(now.time_since_epoch()).count();
  const std::string name = fmt::format("events.out.tfevents.{}.{}.{}", seconds, host_name(), ::getpid());
  for (int number = 0;; ++number) {
    const auto path = folder / (number == 0 ? name : fmt::format("{}.{}", name, number));
    try {
      return AppendFile(File::create(path));
    } catch (const SystemError& error) {
      if (error.error_number() != EEXIST) throw;
    }
  }
}

}  // namespace

uint32_t masked_crc32c(std::string_view data) { return std::rotr(crc32c(data), 15) + 0xa282ead8u; }

std::string tensorboard_record(std::string_view data) {
  std::string record;
  put_little_endian(record, static_cast<uint64_t>(data.size()));
  put_little_endian(record, masked_crc32c(record));
  record += data;
  put_little_endian(record, masked_crc32c(data));
  return record;
}

TensorBoardWriter::TensorBoardWriter(const std::filesystem::path& folder, TensorBoardOptions options)
    : options_(std::move(options)), file_(new_file(folder, options_.now())) {
  std::string version;
  put_bytes(version, event_field::kFileVersion, "brain.Event:2");
  append(0, version);
  if (!options_.resumed_step) return;
  std::string session, fields;
  put_integer(session, 1, kSessionStart);
  put_bytes(fields, event_field::kSessionLog, session);
  append(*options_.resumed_step + 1, fields);  // the first step to be hidden
}

void TensorBoardWriter::append(int64_t step, std::string_view fields) {
  const std::lock_guard lock(mutex_);
  std::string event;
  put_double(event, event_field::kWallTime, std::chrono::duration<double>(options_.now().time_since_epoch()).count());
  if (step != 0) put_integer(event, event_field::kStep, step);
  event += fields;
  file_.append(tensorboard_record(event));
}

void TensorBoardWriter::add_scalars(int64_t step, const std::vector<std::pair<std::string, double>>& values) {
  if (values.empty()) return;
  std::string summary, fields;
  for (const auto& [tag, number] : values) put_bytes(summary, summary_field::kValue, scalar_value(tag, number));
  put_bytes(fields, event_field::kSummary, summary);
  append(step, fields);
}

void TensorBoardWriter::add_text(std::string_view tag, std::string_view markdown, int64_t step) {
  std::string summary, fields;
  put_bytes(summary, summary_field::kValue, text_value(tag, markdown));
  put_bytes(fields, event_field::kSummary, summary);
  append(step, fields);
}

void TensorBoardWriter::add_preformatted(std::string_view tag, std::string_view text, int64_t step) {
  // Four spaces make a block of code, whatever the text holds; a fence could be closed by it.
  std::string markdown = "    ";
  for (const char c : text) {
    markdown += c;
    if (c == '\n') markdown += "    ";
  }
  add_text(tag, markdown, step);
}

}  // namespace trireme
