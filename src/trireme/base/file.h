// Calls to the file system whose success matters: each can be made to fail, each throws SystemError with the path.
//
// Before a call it passes two fault points: "file.call", which counts all of them, and one of its own: file.open,
// file.write, file.sync, file.read, file.make_folder, file.sync_folder, file.rename, file.remove.
// Threads: all; one File belongs to one thread at a time. Any call may block for as long as the disk does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace trireme {

/// An open file, closed at the end. Never a symbolic link, and never left to programs that are started.
class File {
 public:
  /// A new file for writing; fails where there is anything of that name.
  static File create(const std::filesystem::path& path);
  /// An existing file for writing at its end; made where there is none.
  static File append(const std::filesystem::path& path);
  /// A regular file for reading. Anything else (a folder, a pipe) is refused with EINVAL, without blocking.
  static File open(const std::filesystem::path& path);

  File(File&& other) noexcept;
  File& operator=(File&&) = delete;
  ~File();

  /// All of it, or it throws.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  /// Returns once the bytes are on the disk. After a failure nothing is known about the file: write a new one.
  void sync();
  /// As much as there is at `offset`, at most out.size(); less only at the end of the file.
  size_t read_at(uint64_t offset, std::span<std::byte> out) const;
  uint64_t num_bytes() const;
  /// Asks the kernel to forget clean pages, so that the next read comes from the disk.
  void forget_cached() const;

  int fd() const { return fd_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  friend void sync_folder(const std::filesystem::path& path);
  File(int fd, std::filesystem::path path) : fd_(fd), path_(std::move(path)) {}

  int fd_;
  std::filesystem::path path_;
  uint64_t offset_ = 0;  // of the next write, for those who watch
};

/// The whole of a regular file of at most `most_bytes`; throws Error where it is larger.
std::string read_whole_file(const std::filesystem::path& path, uint64_t most_bytes);

/// Readers see the old file or the new one, never half of it. Throws SystemError.
void replace_file(const std::filesystem::path& path, std::string_view contents);

/// One folder; its parent must exist. Returns false where it was there already.
bool make_folder(const std::filesystem::path& path);
/// With all missing parents, each of them durable.
void make_folders(const std::filesystem::path& path);
/// Makes names in the folder durable: those made, those renamed, those removed.
void sync_folder(const std::filesystem::path& path);
/// Replaces a file of the new name; fails for a folder that is not empty.
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to);
/// Both names exist and change places at once. Throws with EINVAL on file systems that cannot do it.
void exchange_paths(const std::filesystem::path& a, const std::filesystem::path& b);
void remove_file(const std::filesystem::path& path);
/// A file, a link (never what it leads to) or a folder with all that is in it. What is not there is no error.
void remove_tree(const std::filesystem::path& path);
/// What a user may still write to the disk of this path.
uint64_t free_bytes(const std::filesystem::path& path);

// For tests: a disk that is watched, and one that fills up.
struct FileEvent {
  enum class Kind { kCreate, kWrite, kSync, kMakeFolder, kSyncFolder, kRename, kExchange, kRemove };
  Kind kind;
  std::filesystem::path path, target;  ///< target: of kRename and kExchange
  uint64_t offset = 0;                 ///< of kWrite
  std::string bytes;                   ///< of kWrite
};
/// Is told of every change after it has been made; an empty function ends it. Set it while nobody writes.
void set_file_observer(std::function<void(const FileEvent&)> observer);
/// From now on only so many bytes can be written, then ENOSPC; nothing takes the limit away.
void set_pretended_space(std::optional<uint64_t> num_bytes);

}  // namespace trireme
