#include "trireme/data/idx.h"

#include <fmt/format.h>

#include <array>
#include <optional>

#include "trireme/base/error.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kImageMagic = 0x0803, kLabelMagic = 0x0801;
constexpr const char* kFetchAgain = "the file is damaged or cut short: fetch it again";

uint32_t big_endian(std::span<const uint8_t> bytes, size_t at) {
  return uint32_t{bytes[at]} << 24 | uint32_t{bytes[at + 1]} << 16 | uint32_t{bytes[at + 2]} << 8 | bytes[at + 3];
}

/// "train-images-idx3-ubyte" or "train-images.idx3-ubyte", whichever is there.
std::optional<fs::path> find(const fs::path& folder, const std::string& stem, const std::string& rest) {
  std::error_code ignored;
  for (const char* between : {"-", "."}) {
    const fs::path path = folder / (stem + between + rest);
    if (fs::exists(path, ignored)) return path;
  }
  return std::nullopt;
}

fs::path need(const fs::path& folder, const std::string& stem, const std::string& rest) {
  if (auto path = find(folder, stem, rest)) return *path;
  const bool packed = find(folder, stem, rest + ".gz").has_value();
  throw UsageError(fmt::format("{} has no file {}-{}", folder.string(), stem, rest),
                   packed ? fmt::format("unpack it: gunzip {}/*.gz", folder.string())
                          : "MNIST is four files: images and labels, train and t10k");
}

/// Checks magic and size; the sizes after the magic.
template <size_t N>
std::array<int64_t, N> read_header(const FileBytes& file, uint32_t magic) {
  const auto bytes = file.bytes();
  const size_t header = 4 + 4 * N;
  if (bytes.size() < header) {
    throw UsageError(fmt::format("{} has {} bytes, but its header alone has {}", file.name(), bytes.size(), header),
                     kFetchAgain);
  }
  const uint32_t found = big_endian(bytes, 0);
  if (found != magic) {
    const bool packed = found >> 16 == 0x1f8b;
    throw UsageError(
        fmt::format("{}, byte 0: magic {:#010x} instead of {:#010x}", file.name(), found, magic),
        packed ? "it is packed: gunzip it" : "it is not an IDX file of this kind; images and labels may be swapped");
  }
  std::array<int64_t, N> sizes;
  unsigned __int128 body = 1;  // of at most three 32-bit numbers
  for (size_t i = 0; i < N; ++i) {
    sizes[i] = big_endian(bytes, 4 + 4 * i);
    body *= static_cast<uint64_t>(sizes[i]);
  }
  if (body != bytes.size() - header) {
    std::string product = std::to_string(sizes[0]);
    for (size_t i = 1; i < N; ++i) product += fmt::format(" × {}", sizes[i]);
    throw UsageError(
        fmt::format("{}, byte 4: the header says {} bytes, but {} follow", file.name(), product, bytes.size() - header),
        kFetchAgain);
  }
  if (body == 0) throw UsageError(fmt::format("{} holds nothing: a size is 0", file.name()), "check data.path");
  return sizes;
}

}  // namespace

bool has_idx(const fs::path& folder) {
  return find(folder, "train-images", "idx3-ubyte") || find(folder, "train-images", "idx3-ubyte.gz");
}

IdxImages read_idx(const std::shared_ptr<const FileBytes>& images, const std::shared_ptr<const FileBytes>& labels,
                   int64_t classes) {
  const auto [count, height, width] = read_header<3>(*images, kImageMagic);
  const auto [num_labels] = read_header<1>(*labels, kLabelMagic);
  if (count != num_labels) {
    throw UsageError(
        fmt::format("{} has {} images, but {} has {} labels", images->name(), count, labels->name(), num_labels),
        "they belong to different sets: fetch them again");
  }
  const ImagePiece piece{images,         labels, images->bytes().data() + 16, labels->bytes().data() + 8, count,
                         height * width, 1};
  check_labels(piece, classes, labels->name(), 8);
  return {piece, ImageShape{1, height, width}};
}

ImageFiles open_idx(const fs::path& folder, FileCache cache, int64_t classes) {
  const auto open_part = [&](const std::string& part) {
    const fs::path images = need(folder, part + "-images", "idx3-ubyte"),
                   labels = need(folder, part + "-labels", "idx1-ubyte");
    return read_idx(FileBytes::open(images, cache), FileBytes::open(labels, cache), classes);
  };
  const IdxImages train = open_part("train");
  // The mean and deviation of MNIST's training pixels.
  ImageFiles files{{train.piece}, {}, train.shape, {{0.1307f}, {0.3081f}}, classes, "MNIST"};
  const bool has_test = find(folder, "t10k-images", "idx3-ubyte") || find(folder, "t10k-labels", "idx1-ubyte");
  if (has_test) {
    const IdxImages test = open_part("t10k");
    if (test.shape != train.shape) {
      throw UsageError(fmt::format("{}: test images are {} × {}, training images {} × {}", folder.string(),
                                   test.shape.height, test.shape.width, train.shape.height, train.shape.width),
                       "they belong to different sets: fetch them again");
    }
    files.held_out.push_back(test.piece);
  }
  return files;
}

}  // namespace trireme
