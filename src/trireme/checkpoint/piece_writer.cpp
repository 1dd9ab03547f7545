#include "trireme/checkpoint/piece_writer.h"

#include <algorithm>

#include "trireme/base/crc32c.h"
#include "trireme/checkpoint/damage.h"

namespace trireme {

PieceWriter::PieceWriter(const std::filesystem::path& path) : file_(File::create(path)) {
  entry_.name = path.filename().string();
  piece_.reserve(kChecksumPiece);
}

void PieceWriter::flush() {
  if (piece_.empty()) return;
  entry_.checksums.push_back(crc32c(piece_));
  file_.write(piece_);
  piece_.clear();
}

void PieceWriter::write(std::span<const std::byte> bytes) {
  entry_.num_bytes += bytes.size();
  while (!bytes.empty()) {
    if (piece_.empty() && bytes.size() >= kChecksumPiece) {  // whole pieces need no copy
      const auto piece = bytes.first(kChecksumPiece);
      entry_.checksums.push_back(crc32c(piece));
      file_.write(piece);
      bytes = bytes.subspan(kChecksumPiece);
      continue;
    }
    const size_t n = std::min<size_t>(bytes.size(), kChecksumPiece - piece_.size());
    piece_.insert(piece_.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(n));
    bytes = bytes.subspan(n);
    if (piece_.size() == kChecksumPiece) flush();
  }
}

ManifestFile PieceWriter::finish() {
  flush();
  file_.sync();
  return entry_;
}

void read_back(const std::filesystem::path& path, const ManifestFile& entry, const std::string& checkpoint) {
  const File file = File::open(path);
  file.forget_cached();
  std::vector<std::byte> bytes(std::min(kChecksumPiece, entry.num_bytes));
  for (uint64_t start = 0, index = 0; start < entry.num_bytes; start += kChecksumPiece, ++index) {
    const std::span<std::byte> piece(bytes.data(), std::min(kChecksumPiece, entry.num_bytes - start));
    if (file.read_at(start, piece) != piece.size() || crc32c(piece) != entry.checksums[index]) {
      throw DamagedError(checkpoint,
                         {entry.name, start, "", 0, "the disk returns other bytes than those just written"});
    }
  }
}

}  // namespace trireme
