// manifest.json: what a checkpoint consists of, with a checksum for every MiB of its files and one for itself.
//
// The same form is used for the record that each shard leaves for the commit. docs/checkpoints.md shows the bytes.
// Values; threads: all.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/checkpoint/tensor_view.h"

namespace trireme {

constexpr uint64_t kChecksumPiece = uint64_t{1} << 20;  ///< bytes of a file that share a checksum

struct ManifestFile {
  std::string name;  ///< "weights-00000-of-00002.safetensors"; never with a "/"
  uint64_t num_bytes = 0;
  std::vector<uint32_t> checksums;  ///< CRC32C of each MiB, the last of what is left

  bool operator==(const ManifestFile&) const = default;
};

/// Rows first_row to first_row + num_rows of dim 0 of a tensor, contiguous in one file. A scalar has one row.
struct ManifestPart {
  TensorInfo tensor;  ///< with the full shape
  uint32_t file = 0;  ///< an index of files
  uint64_t offset = 0;
  int64_t first_row = 0;
  int64_t num_rows = 0;

  uint64_t num_bytes() const;
  bool operator==(const ManifestPart&) const = default;
};

/// Rows of dim 0; 1 for a scalar.
int64_t rows_of(const TensorInfo& tensor);
/// Bytes of one row; 0 for a tensor without elements.
uint64_t row_bytes_of(const TensorInfo& tensor);

struct Manifest {
  static constexpr int kVersion = 1;

  uint64_t step = 0;
  std::string token;  ///< of the save that made it; each file carries it, too
  int num_shards = 0;
  std::string meta = "{}";  ///< a JSON object, byte for byte as it was given
  std::vector<ManifestFile> files;
  std::vector<ManifestPart> parts;

  std::string to_json() const;
  /// `checkpoint` and `file` are for messages. Throws DamagedError where a bit has changed or anything is not as it
  /// must be, and Error for a version that is not known. Takes memory in proportion to the text.
  static Manifest from_json(std::string_view text, const std::string& checkpoint, const std::string& file);
  /// Every part lies inside its file, parts of a file do not overlap, and parts of a tensor agree on type and shape and
  /// make up the whole of it. Throws Error that names the tensor.
  void check_complete() const;

  bool operator==(const Manifest&) const = default;
};

}  // namespace trireme
