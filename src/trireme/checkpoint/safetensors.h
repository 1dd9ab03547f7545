// The file format safetensors: a validated reader of files from anywhere, and a writer that every other tool can read.
//
//   8 bytes       length of the header, little-endian
//   header        JSON {"__metadata__": {name: text}, name: {"dtype", "shape", "data_offsets": [begin, end]}, …},
//   spaces data          tensors one after the other, without holes
//
// Nothing in a file can run code. A reader takes memory in proportion to the header, never to what the header claims.
// Threads: a reader may be used by all at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/checkpoint/tensor_view.h"

namespace trireme {

using TextMap = std::map<std::string, std::string>;

/// Where in its file a tensor lies.
struct StoredTensor {
  TensorInfo info;
  uint64_t offset = 0;  ///< from the start of the file
};

struct SafetensorsHeader {
  std::vector<StoredTensor> tensors;  ///< in the order of their bytes
  TextMap metadata;
  uint64_t num_bytes = 0;  ///< of the length and the header, to where data begin
};

/// The length of the header, at the start of a file.
inline constexpr uint64_t kLengthBytes = 8;

/// "F32"; DataType of "F32 F64 F16 BF16 I32 I64 U8", and of BOOL as U8. Throws Error for others.
std::string_view safetensors_name(DataType type);
DataType safetensors_type(std::string_view name);

/// `start`: the file from its beginning, at least to the end of the header. `file_name` is for messages. Throws Error
/// with file and byte where anything is not as it must be: lengths, JSON, names that are given twice, types, shapes
/// that overflow, and data that overlap, leave a hole or end elsewhere than the file.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> start, uint64_t file_bytes,
                                           const std::string& file_name);

/// The header for these tensors, whose data must follow in the order of `tensors`; ends at a multiple of 64.
/// Fills in num_bytes and the offsets. Throws UsageError for a name that is given twice or is no UTF-8.
std::string make_safetensors_header(SafetensorsHeader& header);

/// Large elements first, else as given: then each tensor is aligned for its type.
std::vector<size_t> safetensors_order(std::span<const TensorInfo> tensors);

/// Writes a new file beside `path` and renames it there: the old one or the new one, never a part. Synced.
void write_safetensors(const std::filesystem::path& path, std::span<const TensorView> tensors,
                       const TextMap& metadata = {});

/// A mapped file. The views live as long as it does. A file that somebody cuts short meanwhile ends the process when it
/// is touched (SIGBUS): for checkpoints, which must survive that, there is CheckpointReader.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);
  SafetensorsFile(SafetensorsFile&& other) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) = delete;
  ~SafetensorsFile();

  const std::vector<StoredTensor>& tensors() const { return header_.tensors; }
  const TextMap& metadata() const { return header_.metadata; }
  bool has(std::string_view name) const { return find(name) != nullptr; }
  /// Throws UsageError that names the nearest one where there is no such tensor.
  TensorView tensor(std::string_view name) const;
  TensorView view(const StoredTensor& tensor) const;
  /// All of them, in the order of the file.
  std::vector<TensorView> views() const;

 private:
  const StoredTensor* find(std::string_view name) const;

  std::string name_;
  const std::byte* data_ = nullptr;
  size_t num_bytes_ = 0;
  SafetensorsHeader header_;
  std::vector<uint32_t> by_name_;  // indices of tensors, sorted by their names
};

}  // namespace trireme
