#include "trireme/base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <limits>
#include <mutex>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/fault.h"
#include "trireme/base/units.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

std::mutex g_observer_mutex;
std::function<void(const FileEvent&)> g_observer;
std::atomic<bool> g_observed{false};
constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();
std::atomic<int64_t> g_space{kUnlimited};

void observe(FileEvent::Kind kind, const fs::path& path, const fs::path& target = {}, uint64_t offset = 0,
             std::span<const std::byte> bytes = {}) {
  if (!g_observed.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(g_observer_mutex);
  if (!g_observer) return;
  g_observer({kind, path, target, offset, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}});
}

/// The errno that a test wants this call to fail with, or 0.
int pretended(std::string_view point) {
  const int of_any = fault_errno("file.call");
  const int of_this = fault_errno(point);
  return of_any != 0 ? of_any : of_this;
}

/// Makes a system call, again where a signal interrupts it. Throws where it or a test says so.
template <typename Call>
auto call(std::string_view point, const std::string& doing, Call&& make) {
  if (const int error = pretended(point)) throw SystemError(doing, error);
  for (;;) {
    const auto result = make();
    if (result >= 0) return result;
    if (errno != EINTR) throw SystemError(doing, errno);
  }
}

/// At most so many bytes as a pretended disk still has; 0 when it is full.
size_t take_space(size_t wanted) {
  int64_t space = g_space.load(std::memory_order_relaxed);
  for (;;) {
    if (space == kUnlimited) return wanted;
    const int64_t taken = std::min(space, static_cast<int64_t>(wanted));
    if (g_space.compare_exchange_weak(space, space - taken)) return static_cast<size_t>(taken);
  }
}

fs::path folder_of(const fs::path& path) {
  const fs::path clean = path.has_filename() ? path : path.parent_path();  // "a/b/" is "a/b"
  return clean.has_parent_path() ? clean.parent_path() : fs::path(".");
}

}  // namespace

File File::create(const fs::path& path) {
  const int fd = call("file.open", "create " + path.string(),
                      [&] { return ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644); });
  observe(FileEvent::Kind::kCreate, path);
  return File(fd, path);
}

File File::append(const fs::path& path) {
  const int fd = call("file.open", "open " + path.string(), [&] {
    return ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644);
  });
  File file(fd, path);
  file.offset_ = file.num_bytes();
  return file;
}

File File::open(const fs::path& path) {
  const int fd = call("file.open", "open " + path.string(),
                      [&] { return ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC); });
  File file(fd, path);
  struct stat status {};
  if (::fstat(fd, &status) != 0) throw SystemError("look at " + path.string(), errno);
  if (!S_ISREG(status.st_mode)) throw SystemError("read " + path.string(), EINVAL, "it is not a regular file");
  return file;
}

File::File(File&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)), offset_(other.offset_) {}

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

void File::write(std::span<const std::byte> bytes) {
  const std::string doing = "write " + path_.string();
  while (!bytes.empty()) {
    const size_t n = take_space(bytes.size());
    if (n == 0) throw SystemError(doing, ENOSPC);
    const auto written = static_cast<size_t>(call("file.write", doing, [&] { return ::write(fd_, bytes.data(), n); }));
    observe(FileEvent::Kind::kWrite, path_, {}, offset_, bytes.first(written));
    offset_ += written;
    bytes = bytes.subspan(written);
  }
}

void File::write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }

void File::sync() {
  call("file.sync", "sync " + path_.string(), [&] { return ::fsync(fd_); });
  observe(FileEvent::Kind::kSync, path_);
}

size_t File::read_at(uint64_t offset, std::span<std::byte> out) const {
  size_t done = 0;
  while (done < out.size()) {
    const auto n = call("file.read", "read " + path_.string(), [&] {
      return ::pread(fd_, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    });
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  return done;
}

uint64_t File::num_bytes() const {
  struct stat status {};
  if (::fstat(fd_, &status) != 0) throw SystemError("look at " + path_.string(), errno);
  return static_cast<uint64_t>(status.st_size);
}

void File::forget_cached() const { (void)::posix_fadvise(fd_, 0, 0, POSIX_FADV_DONTNEED); }

std::string read_whole_file(const fs::path& path, uint64_t most_bytes) {
  const File file = File::open(path);
  const uint64_t num_bytes = file.num_bytes();
  if (num_bytes > most_bytes) {
    throw Error(fmt::format("{} has {}; at most {} are read", path.string(), format_bytes(num_bytes),
                            format_bytes(most_bytes)));
  }
  std::string text(num_bytes, '\0');
  text.resize(file.read_at(0, std::as_writable_bytes(std::span(text.data(), text.size()))));
  return text;
}

bool make_folder(const fs::path& path) {
  try {
    call("file.make_folder", "make the folder " + path.string(), [&] { return ::mkdir(path.c_str(), 0755); });
  } catch (const SystemError& error) {
    std::error_code ignored;
    if (error.error_number() == EEXIST && fs::is_directory(path, ignored)) return false;
    throw;
  }
  observe(FileEvent::Kind::kMakeFolder, path);
  return true;
}

void make_folders(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return;
  const fs::path parent = folder_of(path);
  if (parent != path) make_folders(parent);
  if (make_folder(path)) sync_folder(parent);
}

void sync_folder(const fs::path& path) {
  const std::string doing = "sync the folder " + path.string();
  const int fd =
      call("file.sync_folder", doing, [&] { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  const File folder = File(fd, path);
  call("file.sync_folder", doing, [&] { return ::fsync(folder.fd()); });
  observe(FileEvent::Kind::kSyncFolder, path);
}

void rename_path(const fs::path& from, const fs::path& to) {
  call("file.rename", fmt::format("rename {} to {}", from.string(), to.string()),
       [&] { return ::rename(from.c_str(), to.c_str()); });
  observe(FileEvent::Kind::kRename, from, to);
}

void exchange_paths(const fs::path& a, const fs::path& b) {
  call("file.rename", fmt::format("exchange {} and {}", a.string(), b.string()),
       [&] { return ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE); });
  observe(FileEvent::Kind::kExchange, a, b);
}

void remove_file(const fs::path& path) {
  call("file.remove", "remove " + path.string(), [&] { return ::unlink(path.c_str()); });
  observe(FileEvent::Kind::kRemove, path);
}

void remove_tree(const fs::path& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return;
    throw SystemError("look at " + path.string(), errno);
  }
  if (!S_ISDIR(status.st_mode)) return remove_file(path);
  std::error_code error;
  std::vector<fs::path> inside;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    inside.push_back(at->path());
  }
  if (error) throw SystemError("list the folder " + path.string(), error.value());
  std::sort(inside.begin(), inside.end());
  for (const fs::path& entry : inside) remove_tree(entry);
  call("file.remove", "remove the folder " + path.string(), [&] { return ::rmdir(path.c_str()); });
  observe(FileEvent::Kind::kRemove, path);
}

void replace_file(const std::filesystem::path& path, std::string_view contents) {
  // Beside the file, so that the rename stays on one file system; the pid, so that two writers do not share it.
  const std::filesystem::path temporary = fmt::format("{}.{}.tmp", path.string(), ::getpid());
  ::unlink(temporary.c_str());  // of a killed process that had this pid
  try {
    File::create(temporary).write(contents);
    rename_path(temporary, path);
  } catch (const SystemError&) {
    ::unlink(temporary.c_str());
    throw;
  }
}

uint64_t free_bytes(const fs::path& path) {
  struct statvfs status {};
  if (::statvfs(path.c_str(), &status) != 0) throw SystemError("look at the disk of " + path.string(), errno);
  const uint64_t real = static_cast<uint64_t>(status.f_bavail) * status.f_frsize;
  return std::min(real, static_cast<uint64_t>(g_space.load(std::memory_order_relaxed)));
}

void set_file_observer(std::function<void(const FileEvent&)> observer) {
  const std::lock_guard lock(g_observer_mutex);
  g_observed.store(static_cast<bool>(observer), std::memory_order_relaxed);
  g_observer = std::move(observer);
}

void set_pretended_space(std::optional<uint64_t> num_bytes) {
  g_space.store(num_bytes ? static_cast<int64_t>(*num_bytes) : kUnlimited);
}

}  // namespace trireme
