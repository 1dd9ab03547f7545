#include "trireme/checkpoint/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <optional>
#include <set>

#include "trireme/base/crc32c.h"
#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/checkpoint/damage.h"
#include "trireme/checkpoint/safetensors.h"

namespace trireme {
namespace {

using Tree = nlohmann::json;

constexpr std::string_view kFormat = "trireme checkpoint";
// The end of every manifest, with eight digits between: all other bytes go into the checksum or are compared.
constexpr std::string_view kBeforeChecksum = "\"manifest_crc32c\": \"";
constexpr std::string_view kAfterChecksum = "\"\n}\n";
constexpr size_t kDigits = 8;
constexpr std::string_view kBeforeMeta = "\n\"meta\": ", kAfterMeta = ",\n\"files\": [";
constexpr size_t kMaxNameBytes = 128;
constexpr size_t kMaxTensorDims = 32;
constexpr uint64_t kMaxShards = 1'000'000;

/// Lower-case digits only: a flipped bit turns "a" into "A", and must be noticed.
std::optional<uint32_t> parse_checksum(std::string_view digits) {
  uint32_t value = 0;
  for (const char c : digits) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return std::nullopt;
    value = value << 4 | static_cast<uint32_t>(digit);
  }
  return value;
}

/// A name that stays inside its folder, on any file system.
bool is_plain_name(std::string_view name) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
  };
  return !name.empty() && name.size() <= kMaxNameBytes && name.front() != '.' &&
         std::all_of(name.begin(), name.end(), plain);
}

uint64_t num_pieces(uint64_t num_bytes) { return num_bytes / kChecksumPiece + (num_bytes % kChecksumPiece != 0); }

[[noreturn]] void fail(const std::string& problem) { throw JsonError(0, problem); }

/// The object's values: these keys and no others.
template <size_t kCount>
std::array<const Tree*, kCount> values_of(const Tree& json, const std::array<const char*, kCount>& keys) {
  if (!json.is_object()) fail("expected {");
  for (const auto& [key, value] : json.items()) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) fail(fmt::format("unknown key \"{}\"", key));
  }
  std::array<const Tree*, kCount> values{};
  for (size_t i = 0; i < kCount; ++i) {
    const auto found = json.find(keys[i]);
    if (found == json.end()) fail(fmt::format("\"{}\" is missing", keys[i]));
    values[i] = &*found;
  }
  return values;
}

uint64_t number_in(const Tree& json) {
  if (!json.is_number_unsigned()) fail(fmt::format("{} is not a whole number that is not negative", json.dump()));
  return json.get<uint64_t>();
}

int64_t size_in(const Tree& json) {
  const uint64_t value = number_in(json);
  if (value > uint64_t{INT64_MAX}) fail(fmt::format("the number {} is too large", value));
  return static_cast<int64_t>(value);
}

const std::string& text_in(const Tree& json) {
  if (!json.is_string()) fail("expected a text");
  return json.get_ref<const std::string&>();
}

const Tree& list_in(const Tree& json) {
  if (!json.is_array()) fail("expected a list");
  return json;
}

ManifestFile read_file(const Tree& json) {
  const auto [name, bytes, checksums] = values_of<3>(json, {"name", "bytes", "crc32c"});
  ManifestFile file;
  file.name = text_in(*name);
  if (!is_plain_name(file.name)) fail(name->dump() + " is no name of a file in this folder");
  file.num_bytes = number_in(*bytes);
  const std::string& digits = text_in(*checksums);
  if (digits.size() % kDigits != 0 || digits.size() / kDigits != num_pieces(file.num_bytes)) {
    fail(fmt::format("{}: the number of checksums does not fit its size", file.name));
  }
  file.checksums.reserve(digits.size() / kDigits);
  for (size_t at = 0; at < digits.size(); at += kDigits) {
    const auto checksum = parse_checksum(std::string_view(digits).substr(at, kDigits));
    if (!checksum) fail(fmt::format("{}: a checksum has wrong digits", file.name));
    file.checksums.push_back(*checksum);
  }
  return file;
}

bool overflows(const TensorInfo& tensor) {
  uint64_t n = size_of(tensor.type);
  for (const int64_t size : tensor.shape) {
    if (__builtin_mul_overflow(n, static_cast<uint64_t>(size), &n)) return true;
  }
  return n > static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
}

ManifestPart read_part(const Tree& json, const std::vector<ManifestFile>& files) {
  const auto [name, type, shape, file, byte, first_row, rows] =
      values_of<7>(json, {"name", "type", "shape", "file", "byte", "first_row", "rows"});
  ManifestPart part;
  part.tensor.name = text_in(*name);
  try {
    part.tensor.type = safetensors_type(text_in(*type));
  } catch (const Error& error) {
    fail(error.what());
  }
  if (list_in(*shape).size() > kMaxTensorDims) fail(fmt::format("more than {} dimensions", kMaxTensorDims));
  for (const Tree& size : *shape) part.tensor.shape.push_back(size_in(size));
  if (number_in(*file) >= files.size()) fail(fmt::format("there is no file {}", number_in(*file)));
  part.file = static_cast<uint32_t>(number_in(*file));
  part.offset = number_in(*byte);
  part.first_row = size_in(*first_row);
  part.num_rows = size_in(*rows);
  if (overflows(part.tensor)) fail(fmt::format("tensor {}: the shape is too large", part.tensor.name));
  const int64_t all = rows_of(part.tensor);
  if (part.first_row > all || part.num_rows > all - part.first_row) {
    fail(fmt::format("tensor {} has {} rows only", part.tensor.name, all));
  }
  return part;
}

/// As it was written: between the keys beside it, which stand at the beginning of their lines, as no text can.
std::string meta_in(std::string_view text, const Tree& meta) {
  const size_t begin = text.find(kBeforeMeta), end = text.rfind(kAfterMeta);
  if (!meta.is_object() || begin == text.npos || end == text.npos || end < begin + kBeforeMeta.size()) {
    fail("\"meta\" is not an object on lines of its own");
  }
  const std::string_view written = text.substr(begin + kBeforeMeta.size(), end - begin - kBeforeMeta.size());
  if (parse_strict_json(written) != meta) fail("\"meta\" is not what it seems");
  return std::string(written);
}

Manifest read_manifest(std::string_view text) {
  const Tree json = parse_strict_json(text);
  if (!json.is_object() || json.value("format", Tree()) != Tree(kFormat)) fail("this is no manifest of a checkpoint");
  if (const Tree version = json.value("version", Tree()); version != Tree(Manifest::kVersion)) {
    throw Error(
        fmt::format("the checkpoint has version {}; this trireme reads version {}", version.dump(), Manifest::kVersion),
        "use the trireme that made it, or a newer one");
  }
  const auto [format, version, step, token, num_shards, meta, files, tensors, checksum] = values_of<9>(
      json, {"format", "version", "step", "token", "num_shards", "meta", "files", "tensors", "manifest_crc32c"});
  Manifest manifest;
  manifest.step = number_in(*step);
  manifest.token = text_in(*token);
  const uint64_t shards = number_in(*num_shards);
  if (shards == 0 || shards > kMaxShards) fail(fmt::format("num_shards = {}", shards));
  manifest.num_shards = static_cast<int>(shards);
  manifest.meta = meta_in(text, *meta);
  for (const Tree& file : list_in(*files)) manifest.files.push_back(read_file(file));
  for (const Tree& part : list_in(*tensors)) manifest.parts.push_back(read_part(part, manifest.files));
  return manifest;
}

/// Where the end is as it must be and the checksum fits; else throws JsonError.
void check_checksum(std::string_view text) {
  const size_t end_bytes = kDigits + kAfterChecksum.size();
  if (text.size() < kBeforeChecksum.size() + end_bytes) throw JsonError(text.size(), "it ends too early");
  const size_t digits_at = text.size() - end_bytes;
  if (!text.ends_with(kAfterChecksum) || !text.substr(0, digits_at).ends_with(kBeforeChecksum)) {
    throw JsonError(text.size(), "it does not end as it must");
  }
  const auto checksum = parse_checksum(text.substr(digits_at, kDigits));
  if (!checksum || *checksum != crc32c(text.substr(0, digits_at))) throw JsonError(0, "wrong checksum");
}

void check_parts_of_files(const Manifest& manifest) {
  std::vector<size_t> order(manifest.parts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const ManifestPart &x = manifest.parts[a], &y = manifest.parts[b];
    return x.file != y.file ? x.file < y.file : x.offset < y.offset;
  });
  const ManifestPart* before = nullptr;
  for (const size_t index : order) {
    const ManifestPart& part = manifest.parts[index];
    const ManifestFile& file = manifest.files[part.file];
    if (part.offset > file.num_bytes || part.num_bytes() > file.num_bytes - part.offset) {
      throw Error(fmt::format("tensor {} reaches beyond the end of {}", part.tensor.name, file.name));
    }
    if (part.num_bytes() == 0) continue;
    if (before != nullptr && before->file == part.file && before->offset + before->num_bytes() > part.offset) {
      throw Error(fmt::format("tensors {} and {} overlap in {}", before->tensor.name, part.tensor.name, file.name));
    }
    before = &part;
  }
}

void check_parts_of_tensors(const Manifest& manifest) {
  std::vector<size_t> order(manifest.parts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const ManifestPart &x = manifest.parts[a], &y = manifest.parts[b];
    return x.tensor.name != y.tensor.name ? x.tensor.name < y.tensor.name : x.first_row < y.first_row;
  });
  for (size_t i = 0; i < order.size();) {
    const TensorInfo& tensor = manifest.parts[order[i]].tensor;
    int64_t next = 0;
    for (; i < order.size() && manifest.parts[order[i]].tensor.name == tensor.name; ++i) {
      const ManifestPart& part = manifest.parts[order[i]];
      if (part.tensor != tensor) {
        throw Error(fmt::format("parts of tensor {} disagree about its type or shape", tensor.name));
      }
      if (part.first_row != next || part.num_rows < 0 || part.num_rows > rows_of(tensor) - next) {
        throw Error(part.first_row > next
                        ? fmt::format("tensor {}: rows {} to {} are in no shard", tensor.name, next, part.first_row)
                        : fmt::format("tensor {}: row {} is in two shards, or beyond its {} rows", tensor.name,
                                      part.first_row, rows_of(tensor)));
      }
      next += part.num_rows;
    }
    if (next != rows_of(tensor)) {
      throw Error(fmt::format("tensor {}: rows {} to {} are in no shard", tensor.name, next, rows_of(tensor)));
    }
  }
}

}  // namespace

int64_t rows_of(const TensorInfo& tensor) { return tensor.shape.empty() ? 1 : tensor.shape.front(); }

uint64_t row_bytes_of(const TensorInfo& tensor) {
  uint64_t bytes = size_of(tensor.type);
  for (size_t dim = 1; dim < tensor.shape.size(); ++dim) bytes *= static_cast<uint64_t>(tensor.shape[dim]);
  return bytes;
}

uint64_t ManifestPart::num_bytes() const { return static_cast<uint64_t>(num_rows) * row_bytes_of(tensor); }

std::string Manifest::to_json() const {
  std::string text =
      fmt::format("{{\n\"format\": \"{}\",\n\"version\": {},\n\"step\": {},\n\"token\": {},\n\"num_shards\": {},",
                  kFormat, kVersion, step, Json(token).dump(), num_shards);
  text += fmt::format("{}{}{}", kBeforeMeta, meta, kAfterMeta);
  for (size_t i = 0; i < files.size(); ++i) {
    std::string checksums;
    for (const uint32_t checksum : files[i].checksums) checksums += fmt::format("{:08x}", checksum);
    text += fmt::format("{}\n {{\"name\": {}, \"bytes\": {}, \"crc32c\": \"{}\"}}", i == 0 ? "" : ",",
                        Json(files[i].name).dump(), files[i].num_bytes, checksums);
  }
  text += "\n],\n\"tensors\": [";
  for (size_t i = 0; i < parts.size(); ++i) {
    const ManifestPart& part = parts[i];
    text += fmt::format(
        "{}\n {{\"name\": {}, \"type\": \"{}\", \"shape\": [{}], \"file\": {}, \"byte\": {}, \"first_row\": {}, "
        "\"rows\": {}}}",
        i == 0 ? "" : ",", Json(part.tensor.name).dump(), safetensors_name(part.tensor.type),
        fmt::join(part.tensor.shape, ", "), part.file, part.offset, part.first_row, part.num_rows);
  }
  text += "\n],\n";
  text += kBeforeChecksum;
  text += fmt::format("{:08x}", crc32c(text));
  text += kAfterChecksum;
  return text;
}

Manifest Manifest::from_json(std::string_view text, const std::string& checkpoint, const std::string& file) {
  const auto damaged = [&](size_t byte, const std::string& problem) {
    return DamagedError(checkpoint, {file, byte, "", 0, problem});
  };
  try {
    check_checksum(text);
    Manifest manifest = read_manifest(text);
    std::set<std::string_view> names;
    for (const ManifestFile& entry : manifest.files) {
      if (!names.insert(entry.name).second) throw damaged(0, fmt::format("{} is listed twice", entry.name));
    }
    return manifest;
  } catch (const JsonError& error) {
    throw damaged(error.byte(), error.what());
  }
}

void Manifest::check_complete() const {
  check_parts_of_files(*this);
  check_parts_of_tensors(*this);
}

}  // namespace trireme
