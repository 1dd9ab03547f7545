// Reading: everything in the header is checked before anything is believed.
#include "trireme/checkpoint/safetensors.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/json.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"

namespace trireme {
namespace {

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // what other readers accept
constexpr size_t kMaxTensors = size_t{1} << 20;
constexpr size_t kMaxDims = 32;

struct TypeName {
  std::string_view name;
  DataType type;
};
constexpr TypeName kTypeNames[] = {{"F32", DataType::kFloat},     {"F64", DataType::kDouble}, {"F16", DataType::kHalf},
                                   {"BF16", DataType::kBFloat16}, {"I32", DataType::kInt32},  {"I64", DataType::kInt64},
                                   {"U8", DataType::kUInt8},      {"BOOL", DataType::kUInt8}};

[[noreturn]] void fail(const std::string& file, uint64_t byte, const std::string& problem) {
  throw Error(fmt::format("{} is no good safetensors file: byte {}: {}", file, format_count(static_cast<int64_t>(byte)),
                          problem),
              {}, {.file = file});
}

/// Bytes of the tensor; nothing where they overflow.
std::optional<uint64_t> checked_bytes(const TensorInfo& info) {
  uint64_t n = size_of(info.type);
  for (const int64_t size : info.shape) {
    if (__builtin_mul_overflow(n, static_cast<uint64_t>(size), &n)) return std::nullopt;
  }
  return n;
}

/// Takes the parts of the header; throws JsonError that names the tensor.
class HeaderReader {
 public:
  explicit HeaderReader(std::string_view name) : name_(name) {}

  StoredTensor tensor(const nlohmann::json& json) const {
    if (!json.is_object()) fail("expected {");
    for (const auto& [key, value] : json.items()) {
      if (key != "dtype" && key != "shape" && key != "data_offsets") fail(fmt::format("unknown key \"{}\"", key));
    }
    if (json.size() != 3 || !json["dtype"].is_string()) fail("dtype, shape and two data_offsets are needed");
    StoredTensor tensor;
    tensor.info.name = name_;
    const auto& type = json["dtype"].get_ref<const std::string&>();
    const auto* known = std::find_if(std::begin(kTypeNames), std::end(kTypeNames),
                                     [&](const TypeName& entry) { return entry.name == type; });
    if (known == std::end(kTypeNames)) {
      fail(fmt::format("has the type {}; F32 F64 F16 BF16 I32 I64 U8 BOOL can be read", type));
    }
    tensor.info.type = known->type;
    tensor.info.shape = numbers(json["shape"], kMaxDims);
    const std::vector<int64_t> ends = numbers(json["data_offsets"], 2);
    if (ends.size() != 2) fail("dtype, shape and two data_offsets are needed");
    const std::optional<uint64_t> num_bytes = checked_bytes(tensor.info);
    if (!num_bytes) fail("the shape is too large");
    if (ends[1] < ends[0] || static_cast<uint64_t>(ends[1] - ends[0]) != *num_bytes) {
      fail(fmt::format("data_offsets [{}, {}] do not fit the {} bytes of its shape and type", ends[0], ends[1],
                       *num_bytes));
    }
    tensor.offset = static_cast<uint64_t>(ends[0]);
    return tensor;
  }

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    throw JsonError(0, fmt::format("tensor {}: {}", name_, problem));
  }
  std::vector<int64_t> numbers(const nlohmann::json& json, size_t most) const {
    if (!json.is_array() || json.size() > most) fail(fmt::format("a list of at most {} numbers is needed", most));
    std::vector<int64_t> numbers;
    for (const nlohmann::json& number : json) {
      if (!number.is_number_unsigned() || number.get<uint64_t>() > uint64_t{INT64_MAX}) {
        fail(fmt::format("{} is not a whole number from 0 to 2^63 - 1", number.dump()));
      }
      numbers.push_back(number.get<int64_t>());
    }
    return numbers;
  }

  std::string_view name_;
};

SafetensorsHeader read_header(std::string_view text) {
  SafetensorsHeader header;
  const nlohmann::json json = parse_strict_json(text);
  if (!json.is_object()) throw JsonError(0, "expected {");
  if (json.size() > kMaxTensors) throw JsonError(0, fmt::format("more than {} tensors", kMaxTensors));
  for (const auto& [name, part] : json.items()) {
    if (name != "__metadata__") {
      header.tensors.push_back(HeaderReader(name).tensor(part));
      continue;
    }
    if (!part.is_object()) throw JsonError(0, "__metadata__ is not an object");
    for (const auto& [key, value] : part.items()) {
      if (!value.is_string()) throw JsonError(0, fmt::format("metadata {} is not a text", key));
      header.metadata[key] = value.get<std::string>();
    }
  }
  return header;
}

/// Indices sorted by name.
std::vector<uint32_t> sorted_by_name(const std::vector<StoredTensor>& tensors) {
  std::vector<uint32_t> order(tensors.size());
  std::iota(order.begin(), order.end(), 0U);
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return tensors[a].info.name < tensors[b].info.name; });
  return order;
}

}  // namespace

std::string_view safetensors_name(DataType type) {
  for (const TypeName& entry : kTypeNames) {
    if (entry.type == type) return entry.name;
  }
  throw Error("safetensors has no name for the element type " + std::string(name_of(type)));
}

DataType safetensors_type(std::string_view name) {
  for (const TypeName& entry : kTypeNames) {
    if (entry.name == name) return entry.type;
  }
  throw Error(fmt::format("element type {} cannot be read; F32 F64 F16 BF16 I32 I64 U8 BOOL can", name));
}

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> start, uint64_t file_bytes,
                                           const std::string& file_name) {
  if (file_bytes < kLengthBytes || start.size() < kLengthBytes) {
    fail(file_name, file_bytes, fmt::format("the file ends before its header; it has {} bytes", file_bytes));
  }
  uint64_t length = 0;
  std::memcpy(&length, start.data(), kLengthBytes);
  if (length > kMaxHeaderBytes || length > file_bytes - kLengthBytes) {
    fail(file_name, 0,
         fmt::format("a header of {} bytes does not fit a file of {} bytes (at most {} are read)", length, file_bytes,
                     kMaxHeaderBytes));
  }
  if (start.size() - kLengthBytes < length) fail(file_name, start.size(), "the header was not read whole");
  SafetensorsHeader header;
  try {
    header = read_header({reinterpret_cast<const char*>(start.data()) + kLengthBytes, length});
  } catch (const JsonError& error) {
    fail(file_name, kLengthBytes + error.byte(), error.what());
  }
  header.num_bytes = kLengthBytes + length;

  // An empty tensor comes before the one that begins where it lies.
  std::stable_sort(header.tensors.begin(), header.tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return a.offset != b.offset ? a.offset < b.offset : a.info.num_bytes() < b.info.num_bytes();
  });
  uint64_t end = 0;
  for (StoredTensor& tensor : header.tensors) {
    if (tensor.offset != end) {
      fail(file_name, header.num_bytes + std::min(end, tensor.offset),
           fmt::format("tensor {} {} the data before it", tensor.info.name,
                       tensor.offset < end ? "overlaps" : "leaves a hole after"));
    }
    end += tensor.info.num_bytes();
    if (end > file_bytes - header.num_bytes) {
      fail(file_name, file_bytes,
           fmt::format("the file ends inside tensor {}, {} bytes too early", tensor.info.name,
                       end - (file_bytes - header.num_bytes)));
    }
    tensor.offset += header.num_bytes;
  }
  if (end != file_bytes - header.num_bytes) {
    fail(file_name, header.num_bytes + end, "bytes that belong to no tensor follow");
  }
  return header;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : name_(path.string()) {
  const File file = File::open(path);
  const uint64_t num_bytes = file.num_bytes();
  if (num_bytes < kLengthBytes) {
    fail(name_, num_bytes, fmt::format("the file ends before its header; it has {} bytes", num_bytes));
  }
  void* const mapped = ::mmap(nullptr, num_bytes, PROT_READ, MAP_SHARED, file.fd(), 0);
  if (mapped == MAP_FAILED) throw SystemError("map " + name_, errno);
  data_ = static_cast<const std::byte*>(mapped);
  num_bytes_ = num_bytes;
  try {
    header_ = parse_safetensors_header({data_, num_bytes_}, num_bytes_, name_);
    by_name_ = sorted_by_name(header_.tensors);
  } catch (...) {
    ::munmap(mapped, num_bytes_);
    throw;
  }
}

SafetensorsFile::SafetensorsFile(SafetensorsFile&& other) noexcept
    : name_(std::move(other.name_)),
      data_(std::exchange(other.data_, nullptr)),
      num_bytes_(std::exchange(other.num_bytes_, 0)),
      header_(std::move(other.header_)),
      by_name_(std::move(other.by_name_)) {}

SafetensorsFile::~SafetensorsFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), num_bytes_);
}

const StoredTensor* SafetensorsFile::find(std::string_view name) const {
  const auto found =
      std::lower_bound(by_name_.begin(), by_name_.end(), name,
                       [&](uint32_t index, std::string_view text) { return header_.tensors[index].info.name < text; });
  if (found == by_name_.end() || header_.tensors[*found].info.name != name) return nullptr;
  return &header_.tensors[*found];
}

TensorView SafetensorsFile::tensor(std::string_view name) const {
  if (const StoredTensor* found = find(name)) return view(*found);
  std::vector<std::string_view> names;
  for (const StoredTensor& tensor : tensors()) names.push_back(tensor.info.name);
  const auto meant = nearest(name, names);
  throw UsageError(fmt::format("{} has no tensor {}", name_, name),
                   meant ? fmt::format("did you mean {}?", *meant) : fmt::format("it has {} others", names.size()));
}

TensorView SafetensorsFile::view(const StoredTensor& tensor) const {
  return {tensor.info, {data_ + tensor.offset, tensor.info.num_bytes()}};
}

std::vector<TensorView> SafetensorsFile::views() const {
  std::vector<TensorView> all;
  for (const StoredTensor& tensor : tensors()) all.push_back(view(tensor));
  return all;
}

}  // namespace trireme
