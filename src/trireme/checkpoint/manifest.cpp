#include "trireme/checkpoint/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <set>

#include "trireme/base/crc32c.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/damage.h"
#include "trireme/checkpoint/json_scanner.h"
#include "trireme/checkpoint/safetensors.h"

namespace trireme {
namespace {

constexpr std::string_view kFormat = "trireme checkpoint";
// The end of every manifest, with eight digits between: all other bytes go into the checksum or are compared.
constexpr std::string_view kBeforeChecksum = "\"manifest_crc32c\": \"";
constexpr std::string_view kAfterChecksum = "\"\n}\n";
constexpr size_t kDigits = 8;
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

int64_t read_size(JsonScanner& json) {
  const uint64_t value = json.number();
  if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) json.fail("the number is too large");
  return static_cast<int64_t>(value);
}

/// Keys must come in this order, each once: the text has one form only.
void expect_key(JsonScanner& json, const std::string& key, std::string_view wanted) {
  if (key != wanted) json.fail(fmt::format("\"{}\" stands where \"{}\" must be", key, wanted));
}

ManifestFile read_file(JsonScanner& json) {
  ManifestFile file;
  int field = 0;
  json.object([&](const std::string& key) {
    switch (field++) {
      case 0:
        expect_key(json, key, "name");
        file.name = json.text();
        if (!is_plain_name(file.name)) json.fail(json_text(file.name) + " is no name of a file in this folder");
        break;
      case 1:
        expect_key(json, key, "bytes");
        file.num_bytes = json.number();
        break;
      case 2: {
        expect_key(json, key, "crc32c");
        const std::string digits = json.text();
        if (digits.size() % kDigits != 0 || digits.size() / kDigits != num_pieces(file.num_bytes)) {
          json.fail(fmt::format("{}: the number of checksums does not fit its size", file.name));
        }
        file.checksums.reserve(digits.size() / kDigits);
        for (size_t at = 0; at < digits.size(); at += kDigits) {
          const auto checksum = parse_checksum(std::string_view(digits).substr(at, kDigits));
          if (!checksum) json.fail(fmt::format("{}: a checksum has wrong digits", file.name));
          file.checksums.push_back(*checksum);
        }
        break;
      }
      default:
        json.fail(fmt::format("unknown key \"{}\"", key));
    }
  });
  if (field != 3) json.fail("a file needs name, bytes and crc32c");
  return file;
}

bool overflows(const TensorInfo& tensor) {
  uint64_t n = size_of(tensor.type);
  for (const int64_t size : tensor.shape) {
    if (__builtin_mul_overflow(n, static_cast<uint64_t>(size), &n)) return true;
  }
  return n > static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
}

ManifestPart read_part(JsonScanner& json, const std::vector<ManifestFile>& files) {
  ManifestPart part;
  int field = 0;
  json.object([&](const std::string& key) {
    switch (field++) {
      case 0:
        expect_key(json, key, "name");
        part.tensor.name = json.text();
        break;
      case 1:
        expect_key(json, key, "type");
        try {
          part.tensor.type = safetensors_type(json.text());
        } catch (const JsonError&) {
          throw;
        } catch (const Error& error) {
          json.fail(error.what());
        }
        break;
      case 2:
        expect_key(json, key, "shape");
        json.array([&] {
          if (part.tensor.shape.size() == kMaxTensorDims)
            json.fail(fmt::format("more than {} dimensions", kMaxTensorDims));
          part.tensor.shape.push_back(read_size(json));
        });
        break;
      case 3: {
        expect_key(json, key, "file");
        const uint64_t file = json.number();
        if (file >= files.size()) json.fail(fmt::format("there is no file {}", file));
        part.file = static_cast<uint32_t>(file);
        break;
      }
      case 4:
        expect_key(json, key, "byte");
        part.offset = json.number();
        break;
      case 5:
        expect_key(json, key, "first_row");
        part.first_row = read_size(json);
        break;
      case 6:
        expect_key(json, key, "rows");
        part.num_rows = read_size(json);
        break;
      default:
        json.fail(fmt::format("unknown key \"{}\"", key));
    }
  });
  if (field != 7) json.fail("a tensor needs name, type, shape, file, byte, first_row and rows");
  if (overflows(part.tensor)) json.fail(fmt::format("tensor {}: the shape is too large", part.tensor.name));
  const int64_t rows = rows_of(part.tensor);
  if (part.first_row > rows || part.num_rows > rows - part.first_row) {
    json.fail(fmt::format("tensor {} has {} rows only", part.tensor.name, rows));
  }
  return part;
}

Manifest read_manifest(JsonScanner& json) {
  Manifest manifest;
  int field = 0;
  json.object([&](const std::string& key) {
    switch (field++) {
      case 0:
        expect_key(json, key, "format");
        if (json.text() != kFormat) json.fail("this is no manifest of a checkpoint");
        break;
      case 1: {
        expect_key(json, key, "version");
        const uint64_t version = json.number();
        if (version != Manifest::kVersion) {
          throw Error(
              fmt::format("the checkpoint has version {}; this trireme reads version {}", version, Manifest::kVersion),
              "use the trireme that made it, or a newer one");
        }
        break;
      }
      case 2:
        expect_key(json, key, "step");
        manifest.step = json.number();
        break;
      case 3:
        expect_key(json, key, "token");
        manifest.token = json.text();
        break;
      case 4: {
        expect_key(json, key, "num_shards");
        const uint64_t num_shards = json.number();
        if (num_shards == 0 || num_shards > kMaxShards) json.fail(fmt::format("num_shards = {}", num_shards));
        manifest.num_shards = static_cast<int>(num_shards);
        break;
      }
      case 5: {
        expect_key(json, key, "meta");
        const std::string_view meta = json.raw();
        if (!meta.starts_with('{')) json.fail("meta is no object");
        manifest.meta = meta;
        break;
      }
      case 6:
        expect_key(json, key, "files");
        json.array([&] { manifest.files.push_back(read_file(json)); });
        break;
      case 7:
        expect_key(json, key, "tensors");
        json.array([&] { manifest.parts.push_back(read_part(json, manifest.files)); });
        break;
      case 8:
        expect_key(json, key, "manifest_crc32c");
        json.text();
        break;
      default:
        json.fail(fmt::format("unknown key \"{}\"", key));
    }
  });
  if (field != 9) json.fail("keys are missing");
  json.end();
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
  std::string text = fmt::format(
      "{{\n\"format\": \"{}\",\n\"version\": {},\n\"step\": {},\n\"token\": {},\n\"num_shards\": {},\n\"meta\": {},\n",
      kFormat, kVersion, step, json_text(token), num_shards, meta);
  text += "\"files\": [";
  for (size_t i = 0; i < files.size(); ++i) {
    text += fmt::format("{}\n {{\"name\": {}, \"bytes\": {}, \"crc32c\": \"", i == 0 ? "" : ",",
                        json_text(files[i].name), files[i].num_bytes);
    for (const uint32_t checksum : files[i].checksums) text += fmt::format("{:08x}", checksum);
    text += "\"}";
  }
  text += "\n],\n\"tensors\": [";
  for (size_t i = 0; i < parts.size(); ++i) {
    const ManifestPart& part = parts[i];
    text += fmt::format(
        "{}\n {{\"name\": {}, \"type\": \"{}\", \"shape\": [{}], \"file\": {}, \"byte\": {}, \"first_row\": {}, "
        "\"rows\": "
        "{}}}",
        i == 0 ? "" : ",", json_text(part.tensor.name), safetensors_name(part.tensor.type),
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
    JsonScanner json(text);
    Manifest manifest = read_manifest(json);
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
