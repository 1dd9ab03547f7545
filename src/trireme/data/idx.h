// The IDX files of MNIST: big-endian sizes, then bytes.
//
//   images   00 00 08 03 · count · rows · columns (4 bytes each) · count × rows × columns bytes
//   labels   00 00 08 01 · count                  (4 bytes)      · count bytes
#pragma once

#include <filesystem>

#include "trireme/data/file_bytes.h"
#include "trireme/data/images.h"

namespace trireme {

/// Whether the folder has a file of MNIST's training images, by its name.
bool has_idx(const std::filesystem::path& folder);

struct IdxImages {
  ImagePiece piece;
  ImageShape shape;
};
/// One file of images with that of their labels, which must be below `classes`. Throws as open_idx does.
IdxImages read_idx(const std::shared_ptr<const FileBytes>& images, const std::shared_ptr<const FileBytes>& labels,
                   int64_t classes);

/// train-images-idx3-ubyte, train-labels-idx1-ubyte and, where they are there, the t10k pair; names with a '.' before
/// "idx" do as well. Labels must be below `classes`. Throws UsageError naming file, byte, value and fix.
ImageFiles open_idx(const std::filesystem::path& folder, FileCache cache, int64_t classes);

}  // namespace trireme
