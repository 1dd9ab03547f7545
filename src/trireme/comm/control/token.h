// How the ranks of a job on one machine agree on a secret without being given one: through a file that only its owner
// can read.
//
// Rank 0 writes it before it listens to anybody, the others read it, and it is gone once all have joined. One left over
// by a killed rank 0 is harmless: its secret fits no later job, the refused client reads again, and the next rank 0
// replaces it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace trireme {

/// Where such files are: $XDG_RUNTIME_DIR/trireme when that is ours alone, else /tmp/trireme-<uid>.
/// Throws UsageError when neither can be trusted.
class TokenFile {
 public:
  /// Rank 0: makes a secret and publishes it for `job` on `port`.
  static TokenFile publish(const std::string& job, uint16_t port);

  TokenFile(TokenFile&& other) noexcept;
  TokenFile& operator=(TokenFile&&) = delete;
  /// Removes the file.
  ~TokenFile();

  const std::string& token() const { return token_; }
  const std::string& path() const { return path_; }

 private:
  TokenFile(std::string path, std::string token) : path_(std::move(path)), token_(std::move(token)) {}

  std::string path_, token_;
};

/// The others: the secret, or nothing when it is not there yet. Throws UsageError when the file is not ours alone.
std::optional<std::string> find_token(const std::string& job, uint16_t port);

/// The secret in a file that the user names (TRIREME_TOKEN_FILE): regular, ours, closed to group and others, at most
/// 4 KiB; white space at its end does not count. Throws UsageError with the command that cures it.
std::string read_token_file(const std::string& path);

}  // namespace trireme
