// The bytes of a file, mapped or read, for as long as somebody holds them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/config/choices.h"

namespace trireme {

/// Immutable. Threads: all.
class FileBytes {
 public:
  /// A regular file, which `key` of the config names. Throws SystemError naming both, UsageError where it is a folder,
  /// a pipe or a device.
  static std::shared_ptr<const FileBytes> open(const std::filesystem::path& path, FileCache cache,
                                               std::string_view key = "data.path");
  /// A copy of `bytes`, as if a file of that name held them.
  static std::shared_ptr<const FileBytes> in_memory(std::string name, std::string_view bytes);
  ~FileBytes();
  FileBytes(const FileBytes&) = delete;
  FileBytes& operator=(const FileBytes&) = delete;

  const std::string& name() const { return name_; }
  std::span<const uint8_t> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }

 private:
  explicit FileBytes(std::string name) : name_(std::move(name)) {}

  std::string name_;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
  std::unique_ptr<uint8_t[]> owned_;  ///< null: mapped
};

/// All files under `path` (or `path` itself), by name, hidden ones too. Where nothing has this name it may be a pattern
/// ("data/*.txt") or names with commas between, whose files come in the order of the names or as given. Nothing is
/// skipped: UsageError for a device, a pipe, a link to a folder, and where there is no file at all; SystemError where a
/// folder cannot be read.
std::vector<std::filesystem::path> files_under(const std::filesystem::path& path);

}  // namespace trireme
