#include "trireme/data/cifar.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPixels = 3 * 32 * 32, kRecord = 1 + kPixels, kClasses = 10;

std::vector<fs::path> batches(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("data_batch_") && name.ends_with(".bin")) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

bool has_cifar(const fs::path& folder) { return !batches(folder).empty(); }

ImagePiece read_cifar(const std::shared_ptr<const FileBytes>& file) {
  const auto size = static_cast<int64_t>(file->bytes().size());
  if (size == 0 || size % kRecord != 0) {
    throw UsageError(fmt::format("{} has {} bytes, not a whole number of records of {}", file->name(), size, kRecord),
                     "the file is damaged or cut short: fetch the binary version of CIFAR-10 again");
  }
  const uint8_t* const data = file->bytes().data();
  const ImagePiece piece{file, nullptr, data + 1, data, size / kRecord, kRecord, kRecord};
  check_labels(piece, kClasses, file->name(), 0);
  return piece;
}

ImageFiles open_cifar(const fs::path& folder, FileCache cache) {
  ImageFiles files;
  files.shape = ImageShape{3, 32, 32};
  // The means and deviations of the training pixels.
  files.normalisation = {{0.4914f, 0.4822f, 0.4465f}, {0.2470f, 0.2435f, 0.2616f}};
  files.classes = kClasses;
  files.format = "CIFAR-10";
  for (const fs::path& path : batches(folder)) files.train.push_back(read_cifar(FileBytes::open(path, cache)));
  if (files.train.empty())
    throw UsageError(fmt::format("{} has no data_batch_*.bin", folder.string()), "check data.path");
  std::error_code ignored;
  const fs::path test = folder / "test_batch.bin";
  if (fs::exists(test, ignored)) files.held_out.push_back(read_cifar(FileBytes::open(test, cache)));
  return files;
}

}  // namespace trireme
