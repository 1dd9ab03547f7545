// Reads a checkpoint. Every MiB is verified before any byte of it is given out.
//
// Memory: the manifest, and one MiB. Threads: one at a time for each reader; open several for several.
// Files are read, never mapped, so that a failing disk is an error and not a signal; links are not followed.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/file.h"
#include "trireme/checkpoint/damage.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/tensor_view.h"

namespace trireme {

class CheckpointReader {
 public:
  /// The folder of one checkpoint. Verifies the manifest, and that every file is there with its size; throws
  /// DamagedError where not, SystemError where the folder cannot be read, Error for a version that is not known.
  static CheckpointReader open(const std::filesystem::path& folder);

  CheckpointReader(CheckpointReader&&) noexcept;
  ~CheckpointReader();

  const std::filesystem::path& path() const { return folder_; }
  uint64_t step() const { return manifest_.step; }
  int num_shards() const { return manifest_.num_shards; }
  /// The trainer's JSON object, byte for byte as it was given.
  const std::string& meta() const { return manifest_.meta; }
  const Manifest& manifest() const { return manifest_; }

  /// With full shapes, in the order in which they were saved.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  bool has(std::string_view name) const;
  /// Throws UsageError that names the nearest one where there is no such tensor.
  const TensorInfo& tensor(std::string_view name) const;
  /// "weights", "optimizer": what its file was called.
  std::string group_of(std::string_view name) const;

  /// The whole tensor, whatever files its parts are in. `out` must have its size (UsageError). Throws DamagedError.
  void read(std::string_view name, std::span<std::byte> out) const;
  /// Rows of dim 0, for those who need a part only.
  void read_rows(std::string_view name, int64_t first_row, int64_t num_rows, std::span<std::byte> out) const;

  /// Reads everything. All damages, not only the first.
  std::vector<Damage> verify() const;

 private:
  struct Tensor {
    size_t index;               // of tensors_
    std::vector<size_t> parts;  // of the manifest, by first row
  };
  struct Piece;  // the MiB that was read last

  friend std::vector<Damage> verify_checkpoint(const std::filesystem::path& folder);
  CheckpointReader(std::filesystem::path folder, Manifest manifest);
  void index_tensors();
  void open_files(std::vector<Damage>& damages);
  const Tensor& find(std::string_view name) const;
  void read_bytes(uint32_t file, uint64_t offset, std::span<std::byte> out) const;
  void check_piece(uint32_t file, uint64_t piece, std::span<const std::byte> bytes) const;
  void verify_file(uint32_t file, std::vector<Damage>& damages) const;
  void verify_header(uint32_t file, std::vector<Damage>& damages) const;
  std::string wrong_checksum(uint32_t file) const;
  Damage damage_at(uint32_t file, uint64_t byte, std::string problem) const;
  [[noreturn]] void fail(Damage damage) const;

  std::filesystem::path folder_;
  Manifest manifest_;
  std::vector<std::optional<File>> files_;  // all there, but for verify_checkpoint
  std::vector<TensorInfo> tensors_;
  std::map<std::string, Tensor, std::less<>> by_name_;
  std::unique_ptr<Piece> piece_;
};

/// Everything that is wrong with the checkpoint in this folder; empty where all is well. Throws SystemError where the
/// folder cannot be read, and Error where it was made by a version that is not known.
std::vector<Damage> verify_checkpoint(const std::filesystem::path& folder);

}  // namespace trireme
