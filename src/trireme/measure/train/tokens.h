// Random tokens in a file of their own, for benchmarks that need a vocabulary and no text.
#pragma once

#include <cstdint>
#include <filesystem>

namespace trireme::measure {

/// Owner: the benchmark, for as long as its trainings read it. The file goes with it.
class RandomTokenFile {
 public:
  /// `count` ids below `vocab`, all equally likely, the same on every machine, in llm.c's format in the folder for
  /// temporary files. Throws SystemError.
  RandomTokenFile(int64_t vocab, int64_t count);
  ~RandomTokenFile();
  RandomTokenFile(const RandomTokenFile&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace trireme::measure
