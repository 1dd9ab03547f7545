#include "trireme/comm/control/token.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <system_error>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/sha256.h"
#include "trireme/comm/transport/socket.h"

namespace trireme {
namespace {

constexpr size_t kMaxTokenBytes = 4096;

using Descriptor = Socket;  // closes itself; nothing else of it is used

std::string words_of(int error_number) { return std::generic_category().message(error_number); }

/// Preferred first.
std::vector<std::string> candidate_directories() {
  std::vector<std::string> result;
  if (const char* runtime = std::getenv("XDG_RUNTIME_DIR"); runtime != nullptr && runtime[0] == '/') {
    result.push_back(std::string(runtime) + "/trireme");
  }
  result.push_back(fmt::format("/tmp/trireme-{}", ::geteuid()));
  return result;
}

/// Ours, a directory and no link, closed to all others: nobody else can put, read or replace a file in it.
Descriptor open_private_directory(const std::string& path, std::string& why_not) {
  Descriptor directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info {};
  if (!directory.valid() || ::fstat(directory.fd(), &info) != 0) {
    why_not = words_of(errno);
    return {};
  }
  if (info.st_uid != ::geteuid()) {
    why_not = fmt::format("it belongs to user {}", info.st_uid);
    return {};
  }
  if ((info.st_mode & 077) != 0) {
    why_not = fmt::format("its mode {:o} lets others in", info.st_mode & 0777);
    return {};
  }
  return directory;
}

std::string file_name(const std::string& job, uint16_t port) {
  const Digest digest = Sha256().update(job).update(fmt::format("\n{}", port)).finish();
  return "token-" + to_hex(std::span(digest).first(16));
}

/// What is wrong with an open file as a keeper of secrets; empty when nothing.
std::string find_fault(const struct stat& info, const std::string& path, std::string& cure) {
  if (!S_ISREG(info.st_mode)) {
    cure = "Name a regular file.";
    return "is not a regular file";
  }
  if (info.st_uid != ::geteuid()) {
    cure = fmt::format("Make a copy of your own, or: chown {} {}", ::geteuid(), path);
    return fmt::format("belongs to user {}, not to {}", info.st_uid, ::geteuid());
  }
  if ((info.st_mode & 077) != 0) {
    cure = fmt::format("chmod 600 {}", path);
    return fmt::format("can be read by others: its mode is {:o}", info.st_mode & 0777);
  }
  return {};
}

std::string read_secret(const Descriptor& file, const std::string& path) {
  struct stat info {};
  if (::fstat(file.fd(), &info) != 0) throw UsageError("cannot read the token file " + path + ": " + words_of(errno));
  std::string cure;
  if (const std::string fault = find_fault(info, path, cure); !fault.empty()) {
    throw UsageError("the token file " + path + " " + fault, cure);
  }
  std::array<char, kMaxTokenBytes + 1> buffer;
  size_t filled = 0;
  while (filled < buffer.size()) {
    const ssize_t n = ::read(file.fd(), buffer.data() + filled, buffer.size() - filled);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw UsageError("cannot read the token file " + path + ": " + words_of(errno));
    if (n == 0) break;
    filled += static_cast<size_t>(n);
  }
  if (filled > kMaxTokenBytes) {
    throw UsageError(fmt::format("the token file {} is larger than {} bytes", path, kMaxTokenBytes),
                     "Make a new one: head -c 32 /dev/urandom | base64 > " + path);
  }
  std::string token(buffer.data(), filled);
  token.erase(token.find_last_not_of(" \t\r\n") + 1);
  return token;
}

void write_secret(const Descriptor& directory, const std::string& name, const std::string& token,
                  const std::string& path) {
  std::array<std::byte, 8> random;
  fill_random(random);
  const std::string temporary = name + "." + to_hex(random);
  {
    Descriptor file(
        ::openat(directory.fd(), temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file.valid()) throw SystemError("write the token file " + path, errno);
    const ssize_t n = ::write(file.fd(), token.data(), token.size());
    if (n != static_cast<ssize_t>(token.size()) || ::fchmod(file.fd(), 0600) != 0) {
      const int error_number = n < 0 ? errno : ENOSPC;
      ::unlinkat(directory.fd(), temporary.c_str(), 0);
      throw SystemError("write the token file " + path, error_number);
    }
  }
  if (::renameat(directory.fd(), temporary.c_str(), directory.fd(), name.c_str()) != 0) {
    const int error_number = errno;
    ::unlinkat(directory.fd(), temporary.c_str(), 0);
    throw SystemError("write the token file " + path, error_number);
  }
}

}  // namespace

TokenFile TokenFile::publish(const std::string& job, uint16_t port) {
  std::string reasons;
  for (const std::string& where : candidate_directories()) {
    ::mkdir(where.c_str(), 0700);
    std::string why_not;
    const Descriptor directory = open_private_directory(where, why_not);
    if (!directory.valid()) {
      reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", where, why_not);
      continue;
    }
    Digest secret;
    fill_random(secret);
    const std::string path = where + "/" + file_name(job, port);
    TokenFile file(path, to_hex(secret));
    write_secret(directory, file_name(job, port), file.token(), path);
    return file;
  }
  throw UsageError("no directory is fit to keep the job's token (" + reasons + ")",
                   "Set TRIREME_TOKEN for all ranks, or make the directory yours alone: chmod 700");
}

TokenFile::TokenFile(TokenFile&& other) noexcept
    : path_(std::exchange(other.path_, {})), token_(std::move(other.token_)) {}

TokenFile::~TokenFile() {
  if (!path_.empty()) ::unlink(path_.c_str());
}

std::optional<std::string> find_token(const std::string& job, uint16_t port) {
  for (const std::string& where : candidate_directories()) {
    std::string why_not;
    const Descriptor directory = open_private_directory(where, why_not);
    if (!directory.valid()) continue;
    const std::string name = file_name(job, port);
    const Descriptor file(::openat(directory.fd(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (!file.valid()) continue;
    std::string token = read_secret(file, where + "/" + name);
    if (!token.empty()) return token;
  }
  return std::nullopt;
}

std::string read_token_file(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!file.valid()) {
    throw UsageError("cannot open the token file " + path + ": " + words_of(errno),
                     "TRIREME_TOKEN_FILE names a file with the job's token, the same on all hosts.");
  }
  std::string token = read_secret(file, path);
  if (token.empty()) {
    throw UsageError("the token file " + path + " is empty", "Fill it: head -c 32 /dev/urandom | base64 > " + path);
  }
  return token;
}

}  // namespace trireme
