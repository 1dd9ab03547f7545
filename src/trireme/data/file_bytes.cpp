#include "trireme/data/file_bytes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <glob.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "trireme/base/error.h"
#include "trireme/base/fault.h"
#include "trireme/base/fd.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

std::string cure_of(int error, std::string_view key = "data.path") {
  if (error == ENOENT) {
    return fmt::format("check {}; a relative path counts from the folder where trireme was started", key);
  }
  if (error == EACCES) return "allow reading it (chmod +r), or run as its owner";
  return "";
}

[[noreturn]] void fail(const std::string& doing, int error) { throw SystemError(doing, error, cure_of(error)); }

void read_all(int fd, const std::string& name, uint8_t* to, size_t size) {
  for (size_t done = 0; done < size;) {
    const int pretended = fault_errno("data.file.read");
    if (pretended != 0) fail("read " + name, pretended);
    const ssize_t n = ::pread(fd, to + done, size - done, static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("read " + name, errno);
    if (n == 0) {
      throw UsageError(fmt::format("{} shrank while it was read: {} bytes of {}", name, done, size),
                       "write data files under another name and rename them when they are whole");
    }
    done += static_cast<size_t>(n);
  }
}

/// What a pattern matches, sorted, or the parts of a list; empty where `text` is neither.
std::vector<fs::path> several_paths(const std::string& text) {
  std::vector<fs::path> paths;
  if (text.find_first_of("*?[") != std::string::npos) {
    glob_t matches{};
    const int failed = ::glob(text.c_str(), 0, nullptr, &matches);
    if (failed == 0) paths.assign(matches.gl_pathv, matches.gl_pathv + matches.gl_pathc);
    ::globfree(&matches);
    if (paths.empty()) throw UsageError(fmt::format("no file matches the pattern {}", text), cure_of(ENOENT));
  } else if (text.find(',') != std::string::npos) {
    for (const std::string_view part : split(text, ',')) {
      if (part.empty()) throw UsageError(fmt::format("an empty name in the list of files {}", text), "check data.path");
      paths.emplace_back(part);
    }
  }
  return paths;
}

}  // namespace

std::shared_ptr<const FileBytes> FileBytes::open(const fs::path& path, FileCache cache, std::string_view key) {
  std::shared_ptr<FileBytes> file(new FileBytes(path.string()));
  const std::string& name = file->name_;
  if (const int pretended = fault_errno("data.file.open")) fail("open " + name, pretended);
  // Without O_NONBLOCK, opening a pipe that nobody writes to would wait for ever.
  const Fd descriptor(::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (descriptor.get() < 0) {
    const int error = errno;
    throw SystemError("open " + name, error, cure_of(error, key));
  }
  struct stat status {};
  if (::fstat(descriptor.get(), &status) != 0) fail("look at " + name, errno);
  if (!S_ISREG(status.st_mode)) {
    throw UsageError(fmt::format("{} is {}, not a file", name, S_ISDIR(status.st_mode) ? "a folder" : "a device"),
                     "give a regular file");
  }
  file->size_ = static_cast<size_t>(status.st_size);
  if (file->size_ == 0) return file;  // there is no mapping of no bytes
  if (cache == FileCache::kMemory) {
    try {
      file->owned_ = std::make_unique_for_overwrite<uint8_t[]>(file->size_);
    } catch (const std::bad_alloc&) {
      throw UsageError(fmt::format("{} does not fit into memory: {}", name, format_bytes(file->size_)),
                       "data.cache = \"mmap\" leaves it on the disk");
    }
    read_all(descriptor.get(), name, file->owned_.get(), file->size_);
    file->data_ = file->owned_.get();
  } else {
    void* const mapped = ::mmap(nullptr, file->size_, PROT_READ, MAP_PRIVATE, descriptor.get(), 0);
    if (mapped == MAP_FAILED) fail("map " + name, errno);
    file->data_ = static_cast<const uint8_t*>(mapped);
  }
  return file;
}

std::shared_ptr<const FileBytes> FileBytes::in_memory(std::string name, std::string_view bytes) {
  std::shared_ptr<FileBytes> file(new FileBytes(std::move(name)));
  file->size_ = bytes.size();
  file->owned_ = std::make_unique_for_overwrite<uint8_t[]>(bytes.size());
  std::copy(bytes.begin(), bytes.end(), file->owned_.get());
  file->data_ = file->owned_.get();
  return file;
}

FileBytes::~FileBytes() {
  if (owned_ == nullptr && data_ != nullptr) ::munmap(const_cast<uint8_t*>(data_), size_);
}

std::vector<fs::path> files_under(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) {
    if (const std::vector<fs::path> meant = several_paths(path.string()); !meant.empty()) {
      std::vector<fs::path> files;
      for (const fs::path& each : meant) {
        const std::vector<fs::path> under = files_under(each);
        files.insert(files.end(), under.begin(), under.end());
      }
      return files;
    }
  }
  if (error) fail("look at " + path.string(), error.value());
  if (!fs::is_directory(status)) return {path};
  std::vector<fs::path> files;
  fs::recursive_directory_iterator entry(path, error), end;
  while (!error && entry != end) {
    const fs::file_status kind = entry->status(error);
    if (error) fail("look at " + entry->path().string(), error.value());
    const bool is_link = entry->is_symlink(error);
    if (error) fail("look at " + entry->path().string(), error.value());
    if (is_link && fs::is_directory(kind)) {  // it may lead in a circle
      throw UsageError(fmt::format("{} is a link to a folder, which is not followed", entry->path().string()),
                       "name the folder itself in data.path, or put its files there");
    }
    if (fs::is_regular_file(kind)) {
      files.push_back(entry->path());
    } else if (!fs::is_directory(kind)) {
      throw UsageError(fmt::format("{} is neither a file nor a folder", entry->path().string()),
                       "take it out of the folder that data.path names");
    }
    entry.increment(error);
  }
  if (error) fail("list the folder " + path.string(), error.value());
  if (files.empty()) throw UsageError(fmt::format("the folder {} holds no files", path.string()), "check data.path");
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace trireme
