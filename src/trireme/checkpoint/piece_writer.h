// Writes a file and takes the checksum of each MiB on the way.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <vector>

#include "trireme/base/file.h"
#include "trireme/checkpoint/manifest.h"

namespace trireme {

/// Threads: one. Throws SystemError where the disk fails; the file is then of no use and must be removed.
class PieceWriter {
 public:
  explicit PieceWriter(const std::filesystem::path& path);

  void write(std::span<const std::byte> bytes);
  /// Syncs. What the manifest needs to know of the file.
  ManifestFile finish();

 private:
  void flush();

  File file_;
  ManifestFile entry_;
  std::vector<std::byte> piece_;  // not written yet, less than a MiB
};

/// Reads the file from the disk, not from the cache where the kernel can be asked, and compares it with its checksums.
/// Throws DamagedError.
void read_back(const std::filesystem::path& path, const ManifestFile& entry, const std::string& checkpoint);

}  // namespace trireme
