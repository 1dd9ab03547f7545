// What those who write shards and those who commit them share: names inside a save, and the error of a full disk.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <string>

namespace trireme {

constexpr const char* kManifestName = "manifest.json";

/// "record-00003-of-00008.json": shard 3 has been written.
inline std::string record_name(int shard, int num_shards) {
  return fmt::format("record-{:05}-of-{:05}.json", shard, num_shards);
}

/// SystemError with the bytes needed and those free.
[[noreturn]] void throw_disk_full(const std::filesystem::path& folder, int error_number, uint64_t needed);

}  // namespace trireme
