#include "trireme/checkpoint/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "trireme/base/crc32c.h"
#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/checkpoint/save.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

const std::string kManifest = kManifestName;
constexpr uint64_t kMaxManifestBytes = uint64_t{256} << 20;

/// Whether the disk lost or refused what was there, in contrast to a lack of rights, memory or descriptors.
bool is_damage(const SystemError& error) {
  const int number = error.error_number();
  return number == ENOENT || number == EIO || number == ENOTDIR || number == EINVAL || number == ELOOP;
}

std::string name_of_folder(const fs::path& folder) {
  return folder.has_filename() ? folder.filename().string() : folder.parent_path().filename().string();
}

std::string problem_of(const SystemError& error) {
  if (error.error_number() == ENOENT) return "missing";
  if (error.error_number() == ELOOP) return "a link, which is not followed";
  return cause_of(error);
}

/// Verified in itself.
Manifest read_manifest(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    throw SystemError("open the checkpoint " + folder.string(), error ? error.value() : ENOTDIR,
                      "list those that are there: trireme checkpoint list " +
                          (folder.has_parent_path() ? folder.parent_path().string() : std::string(".")));
  }
  const std::string name = name_of_folder(folder);
  std::string text;
  try {
    text = read_whole_file(folder / kManifest, kMaxManifestBytes);
  } catch (const SystemError& failure) {
    if (!is_damage(failure)) throw;
    throw DamagedError(name, {kManifest, 0, "", 0, problem_of(failure)});
  } catch (const Error&) {
    throw DamagedError(name, {kManifest, kMaxManifestBytes, "", 0, "larger than any manifest"});
  }
  Manifest manifest = Manifest::from_json(text, name, kManifest);
  try {
    manifest.check_complete();
  } catch (const Error& failure) {
    throw DamagedError(name, {kManifest, 0, "", 0, failure.what()});
  }
  return manifest;
}

/// Of an open file; memory in proportion to the header only.
SafetensorsHeader read_header(const File& file) {
  const uint64_t num_bytes = file.num_bytes();
  uint64_t length = 0;
  std::vector<std::byte> start(8);
  start.resize(file.read_at(0, start));
  if (start.size() == sizeof length) {
    std::memcpy(&length, start.data(), sizeof length);
    if (length < num_bytes) {
      start.resize(sizeof length + length);
      start.resize(file.read_at(0, start));
    }
  }
  return parse_safetensors_header(start, num_bytes, file.path().filename().string());
}

}  // namespace

struct CheckpointReader::Piece {
  uint32_t file = 0;
  uint64_t index = 0;
  std::vector<std::byte> bytes;  // empty where none has been read
};

CheckpointReader::CheckpointReader(fs::path folder, Manifest manifest)
    : folder_(std::move(folder)), manifest_(std::move(manifest)), piece_(std::make_unique<Piece>()) {}

CheckpointReader::CheckpointReader(CheckpointReader&&) noexcept = default;
CheckpointReader::~CheckpointReader() = default;

CheckpointReader CheckpointReader::open(const fs::path& folder) {
  CheckpointReader reader(folder, read_manifest(folder));
  reader.index_tensors();
  std::vector<Damage> damages;
  reader.open_files(damages);
  if (!damages.empty()) reader.fail(damages.front());
  return reader;
}

void CheckpointReader::index_tensors() {
  for (size_t i = 0; i < manifest_.parts.size(); ++i) {
    const TensorInfo& tensor = manifest_.parts[i].tensor;
    const auto [at, is_new] = by_name_.try_emplace(tensor.name, Tensor{tensors_.size(), {}});
    if (is_new) tensors_.push_back(tensor);
    at->second.parts.push_back(i);
  }
  for (auto& [_, tensor] : by_name_) {
    std::sort(tensor.parts.begin(), tensor.parts.end(),
              [&](size_t a, size_t b) { return manifest_.parts[a].first_row < manifest_.parts[b].first_row; });
  }
}

void CheckpointReader::open_files(std::vector<Damage>& damages) {
  for (uint32_t i = 0; i < manifest_.files.size(); ++i) {
    const ManifestFile& file = manifest_.files[i];
    files_.emplace_back();
    try {
      files_.back().emplace(File::open(folder_ / file.name));
    } catch (const SystemError& failure) {
      if (!is_damage(failure)) throw;
      damages.push_back(damage_at(i, 0, problem_of(failure)));
      continue;
    }
    const uint64_t num_bytes = files_.back()->num_bytes();
    if (num_bytes != file.num_bytes) {
      damages.push_back(damage_at(i, std::min(num_bytes, file.num_bytes),
                                  fmt::format("the file has {} bytes instead of {}", num_bytes, file.num_bytes)));
      files_.back().reset();
    }
  }
}

bool CheckpointReader::has(std::string_view name) const { return by_name_.find(name) != by_name_.end(); }

const CheckpointReader::Tensor& CheckpointReader::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  if (found != by_name_.end()) return found->second;
  std::vector<std::string_view> names;
  for (const TensorInfo& tensor : tensors_) names.push_back(tensor.name);
  const auto meant = nearest(name, names);
  throw UsageError(fmt::format("checkpoint {} has no tensor {}", name_of_folder(folder_), name),
                   meant ? fmt::format("did you mean {}?", *meant) : fmt::format("it has {} others", names.size()),
                   {.parameter = std::string(name)});
}

const TensorInfo& CheckpointReader::tensor(std::string_view name) const { return tensors_[find(name).index]; }

std::string CheckpointReader::group_of(std::string_view name) const {
  const std::string& file = manifest_.files[manifest_.parts[find(name).parts.front()].file].name;
  return file.substr(0, file.find('-'));
}

void CheckpointReader::read(std::string_view name, std::span<std::byte> out) const {
  read_rows(name, 0, rows_of(tensor(name)), out);
}

void CheckpointReader::read_rows(std::string_view name, int64_t first_row, int64_t num_rows,
                                 std::span<std::byte> out) const {
  const Tensor& entry = find(name);
  const TensorInfo& info = tensors_[entry.index];
  if (first_row < 0 || num_rows < 0 || first_row > rows_of(info) || num_rows > rows_of(info) - first_row) {
    throw UsageError(
        fmt::format("rows {} to {} of tensor {}, which has {}", first_row, first_row + num_rows, name, rows_of(info)));
  }
  const uint64_t row_bytes = row_bytes_of(info);
  const uint64_t needed = static_cast<uint64_t>(num_rows) * row_bytes;
  if (out.size() != needed) {
    throw UsageError(fmt::format("tensor {} needs {} bytes, but room for {} was given", name, needed, out.size()));
  }
  for (const size_t index : entry.parts) {
    const ManifestPart& part = manifest_.parts[index];
    const int64_t begin = std::max(first_row, part.first_row);
    const int64_t end = std::min(first_row + num_rows, part.first_row + part.num_rows);
    if (begin >= end) continue;
    read_bytes(part.file, part.offset + static_cast<uint64_t>(begin - part.first_row) * row_bytes,
               out.subspan(static_cast<uint64_t>(begin - first_row) * row_bytes,
                           static_cast<uint64_t>(end - begin) * row_bytes));
  }
}

void CheckpointReader::read_bytes(uint32_t file, uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const uint64_t index = offset / kChecksumPiece, start = index * kChecksumPiece;
    const uint64_t piece_bytes = std::min(kChecksumPiece, manifest_.files[file].num_bytes - start);
    const uint64_t skipped = offset - start;
    const uint64_t taken = std::min<uint64_t>(out.size(), piece_bytes - skipped);
    const auto fill = [&](std::span<std::byte> into) {
      size_t n = 0;
      try {
        n = files_[file]->read_at(start, into);
      } catch (const SystemError& failure) {
        if (!is_damage(failure)) throw;
        fail(damage_at(file, start, problem_of(failure)));
      }
      if (n != into.size()) fail(damage_at(file, start + n, "the file ends too early"));
      check_piece(file, index, into);
    };
    if (taken == piece_bytes) {
      fill(out.first(taken));
    } else {
      if (piece_->bytes.empty() || piece_->file != file || piece_->index != index) {
        std::vector<std::byte> bytes = std::exchange(piece_->bytes, {});
        bytes.resize(piece_bytes);
        fill(bytes);
        *piece_ = {file, index, std::move(bytes)};
      }
      std::memcpy(out.data(), piece_->bytes.data() + skipped, taken);
    }
    offset += taken;
    out = out.subspan(taken);
  }
}

void CheckpointReader::check_piece(uint32_t file, uint64_t piece, std::span<const std::byte> bytes) const {
  if (crc32c(bytes) == manifest_.files[file].checksums[piece]) return;
  fail(damage_at(file, piece * kChecksumPiece, wrong_checksum(file)));
}

std::string CheckpointReader::wrong_checksum(uint32_t file) const {
  // A file that is good in itself, but of another save or in another's place, says so in its header.
  try {
    const TextMap metadata = read_header(*files_[file]).metadata;
    const auto get = [&](const char* key) {
      const auto found = metadata.find(key);
      return found != metadata.end() ? found->second : "";
    };
    if (get("trireme.token") != manifest_.token && !get("trireme.token").empty()) {
      return fmt::format("wrong checksum; it is a file of another save, of step {}", get("trireme.step"));
    }
    if (get("trireme.file") != manifest_.files[file].name && !get("trireme.file").empty()) {
      return fmt::format("wrong checksum; it is the file {}", get("trireme.file"));
    }
  } catch (const Error&) {
    // Its header is damaged, too.
  }
  return "wrong checksum";
}

Damage CheckpointReader::damage_at(uint32_t file, uint64_t byte, std::string problem) const {
  Damage damage{manifest_.files[file].name, byte, "", 0, std::move(problem)};
  const uint64_t begin = byte / kChecksumPiece * kChecksumPiece, end = begin + kChecksumPiece;
  uint64_t first = 0;
  for (const ManifestPart& part : manifest_.parts) {
    if (part.file != file || part.offset >= end || part.offset + part.num_bytes() <= begin) continue;
    if (damage.tensor.empty() || part.offset < first) {
      if (!damage.tensor.empty()) ++damage.more_tensors;
      damage.tensor = part.tensor.name;
      first = part.offset;
    } else {
      ++damage.more_tensors;
    }
  }
  return damage;
}

void CheckpointReader::fail(Damage damage) const { throw DamagedError(name_of_folder(folder_), std::move(damage)); }

std::vector<Damage> CheckpointReader::verify() const {
  std::vector<Damage> damages;
  for (uint32_t file = 0; file < manifest_.files.size(); ++file) verify_file(file, damages);
  return damages;
}

void CheckpointReader::verify_file(uint32_t file, std::vector<Damage>& damages) const {
  const size_t before = damages.size();
  const ManifestFile& entry = manifest_.files[file];
  std::vector<std::byte> bytes(std::min(kChecksumPiece, entry.num_bytes));
  for (uint64_t start = 0; start < entry.num_bytes; start += kChecksumPiece) {
    const std::span<std::byte> piece(bytes.data(), std::min(kChecksumPiece, entry.num_bytes - start));
    try {
      const size_t n = files_[file]->read_at(start, piece);
      if (n != piece.size()) {
        damages.push_back(damage_at(file, start + n, "the file ends too early"));
        return;
      }
      check_piece(file, start / kChecksumPiece, piece);
    } catch (const DamagedError& error) {
      damages.push_back(error.damage());
    } catch (const SystemError& error) {
      if (!is_damage(error)) throw;
      damages.push_back(damage_at(file, start, problem_of(error)));
    }
  }
  if (damages.size() == before) verify_header(file, damages);
}

void CheckpointReader::verify_header(uint32_t file, std::vector<Damage>& damages) const {
  // The bytes are those that were written. Is what the manifest says of them true for every other tool, too?
  const ManifestFile& entry = manifest_.files[file];
  try {
    const std::vector<StoredTensor> stored = read_header(*files_[file]).tensors;
    for (const ManifestPart& part : manifest_.parts) {
      if (part.file != file) continue;
      TensorInfo held = part.tensor;
      if (!held.shape.empty()) held.shape.front() = part.num_rows;
      auto at = std::lower_bound(stored.begin(), stored.end(), part.offset,
                                 [](const StoredTensor& tensor, uint64_t offset) { return tensor.offset < offset; });
      while (at != stored.end() && at->offset == part.offset && at->info != held) ++at;
      if (at == stored.end() || at->offset != part.offset) {
        damages.push_back({entry.name, part.offset, part.tensor.name, 0, "the file's header says something else"});
      }
    }
  } catch (const SystemError&) {
    throw;
  } catch (const Error& error) {
    damages.push_back({entry.name, 0, "", 0, error.what()});
  }
}

std::vector<Damage> verify_checkpoint(const fs::path& folder) {
  try {
    CheckpointReader reader(folder, read_manifest(folder));
    reader.index_tensors();
    std::vector<Damage> damages;
    reader.open_files(damages);
    for (uint32_t file = 0; file < reader.files_.size(); ++file) {
      if (reader.files_[file]) reader.verify_file(file, damages);
    }
    return damages;
  } catch (const DamagedError& error) {
    return {error.damage()};
  }
}

}  // namespace trireme
