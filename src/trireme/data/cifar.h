// CIFAR-10 in its binary form: records of one label byte and 3 × 32 × 32 pixel bytes, red, green, blue.
#pragma once

#include <filesystem>

#include "trireme/data/file_bytes.h"
#include "trireme/data/images.h"

namespace trireme {

/// Whether the folder has a data_batch_*.bin.
bool has_cifar(const std::filesystem::path& folder);

/// The records of one file. Throws as open_cifar does.
ImagePiece read_cifar(const std::shared_ptr<const FileBytes>& file);

/// All data_batch_*.bin by name and, where it is there, test_batch.bin. Throws UsageError naming file, byte, value.
ImageFiles open_cifar(const std::filesystem::path& folder, FileCache cache);

}  // namespace trireme
